// Who may talk to a process: loopback and Unix sockets in the clear, everything else by mutual TLS.
#pragma once

#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace grpc {
class Channel;
class ChannelCredentials;
class ClientContext;
class ServerCredentials;
}  // namespace grpc

namespace tandem {

// PEM files for mutual TLS; all empty means none.
struct RpcSecurity {
  std::string cert;  // this host's certificate chain
  std::string key;   // its private key
  std::string ca;    // the authority that signed the peers

  bool enabled() const { return !cert.empty() || !key.empty() || !ca.empty(); }
};

// InvalidArgument: `address` is reachable from other hosts and `security` is empty or incomplete;
// NotFound: a PEM file cannot be read.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const std::string& address, const RpcSecurity& security);
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(
    const std::string& address, const RpcSecurity& security);

// Client channels and deadlines.

// Connects lazily; reconnects within a second of the peer's return. Messages up to 4 MiB.
// InvalidArgument: an address beyond this host without mutual TLS.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const std::string& address,
                                                           const RpcSecurity& security = {});

// Sends gRPC's own log lines to the debug log: what matters of them comes back as a status.
void QuietGrpc();

// Every call has a deadline: `timeout` from now.
void SetDeadline(grpc::ClientContext& context, absl::Duration timeout);

// Whether somebody listens at an address, whatever they speak.

// Connects to host:port and hangs up; false for other addresses too. Blocks for a name's resolution
// and a connection attempt.
bool AcceptsConnections(const std::string& address);

}  // namespace tandem
