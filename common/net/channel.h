// Client channels and deadlines.
#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/net/security.h"

namespace grpc {
class Channel;
class ClientContext;
}  // namespace grpc

namespace tandem {

// Connects lazily; reconnects within a second of the peer's return. Messages up to 4 MiB.
// InvalidArgument: an address beyond this host without mutual TLS.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const std::string& address,
                                                           const RpcSecurity& security = {});

// Sends gRPC's own log lines to the debug log: what matters of them comes back as a status.
void QuietGrpc();

// Every call has a deadline: `timeout` from now.
void SetDeadline(grpc::ClientContext& context, absl::Duration timeout);

}  // namespace tandem
