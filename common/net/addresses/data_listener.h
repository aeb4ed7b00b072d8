// Where a worker waits for the data connections of its peers on other hosts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/net/addresses/announced_address.h"
#include "common/net/security/rpc_security.h"
#include "common/tcp/tcp_listener.h"
#include "common/tcp/tcp_security.h"

namespace tandem {

// The files that data connections use, those of `security`, with peers of `peer_roles` in the
// project of this process's own certificate. Plain TCP without TLS, and where `data_tls`
// (cluster.data_tls) is false, which is then logged. Errors as ServedProject.
absl::StatusOr<TcpSecurity> DataSecurity(const RpcSecurity& security,
                                         std::vector<std::string> peer_roles,
                                         bool data_tls = true);

struct DataListenOptions {
  // Of the worker's server ("10.0.0.5:4711"): data comes to the same host. Of a Unix socket it does
  // not say one: all interfaces with TLS, else 127.0.0.1.
  std::string server;
  // The ports to try, in this order. Both 0: any free one.
  int first_port = 0;
  int last_port = 0;
  TcpSecurity security;
  bool clear_text = false;  // also for other hosts: cluster.data_tls is false
  NetworkFlags network;
  std::string controller;  // its address
};

struct DataListener {
  std::unique_ptr<TcpListener> listener;
  std::string address;  // where peers reach it
};

// InvalidArgument: as AnnouncedAddress and TcpListener::Listen, or an address that other hosts
// reach without TLS. ResourceExhausted: every port of the range is taken.
absl::StatusOr<DataListener> ListenForData(const DataListenOptions& options);

}  // namespace tandem
