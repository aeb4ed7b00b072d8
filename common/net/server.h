// A gRPC server with health checking and reflection.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/net/channel.h"

namespace grpc {
class Server;
class Service;
}  // namespace grpc

namespace tandem {

// Example:
//   TANDEM_ASSIGN_OR_RETURN(auto server, RpcServer::Start("unix:/run/x.sock", {&service},
//   security));
//   ... server->address() ...
//   server->Shutdown(absl::Seconds(2));
// Thread-safe. The destructor shuts down with one second of grace.
class RpcServer {
 public:
  // Listens at once. `address`: "unix:/path" (made 0600; its folder, where it is missing, 0700; a
  // socket file that no process listens on is replaced) or "host:port" (port 0 picks a free one).
  // The services must outlive the server. AlreadyExists: port or socket in use. InvalidArgument:
  // not an address of this host, one that other hosts reach without mutual TLS, or a loopback port
  // without the run's token. Other errors of the system by IoErrorCode.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(
      const std::string& address,
      const std::vector<grpc::Service*>& services,
      const RpcSecurity& security);
  ~RpcServer();

  // What clients connect to, with the real port.
  const std::string& address() const { return address_; }

  // Refuses new calls, waits up to `grace` for running ones, then cancels them. Idempotent.
  void Shutdown(absl::Duration grace);

 private:
  RpcServer();

  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace tandem
