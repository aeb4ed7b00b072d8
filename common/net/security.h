// Who may talk to a process: loopback and Unix sockets in the clear, everything else by mutual TLS.
#pragma once

#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace grpc {
class ChannelCredentials;
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

}  // namespace tandem
