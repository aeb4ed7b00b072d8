// Who makes a gRPC call, by the certificate of its connection.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include <absl/status/status.h>

#include "common/net/security/call_roles.h"

namespace grpc {
class AuthMetadataProcessor;
class ServerContextBase;
}  // namespace grpc

namespace tandem {

// Refuses, on connections with TLS, every call that the table of common/net/security/call_roles.h
// does not give to the caller. PermissionDenied, as CheckMayCall. `publisher` is RpcSecurity's,
// read for each call.
std::shared_ptr<grpc::AuthMetadataProcessor> MakeRoleCheck(
    std::string project, std::shared_ptr<const std::atomic<int>> publisher);

// PermissionDenied: the call's connection has TLS, and its certificate is not that of worker `rank`
// of `role` in `project`. On other connections the caller has the run's token or its user, and is
// every worker. `context` may be null, as for a call from within.
absl::Status CheckWorkerCall(const grpc::ServerContextBase* context,
                             const std::string& project,
                             std::string_view role,
                             int rank);

}  // namespace tandem
