// Who may make which call: the table of roles.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>

#include "common/tcp/identity.h"

namespace tandem {

// The roles that may call `method`, as gRPC names it ("/tandem.v1.TandemService/Stop"). Empty: the
// method is not in the table, and no role may. Health checks and reflection are for every role.
const RoleNames& RolesFor(std::string_view method);

// `method` for a log: the name of a call in the table, "a health check", "reflection", or "an
// unknown method". A caller's own text must not get into the log.
std::string_view MethodText(std::string_view method);

// For whom a server answers over TLS.
struct ServedCallers {
  std::string project;
  // Of a rollout that serves: the trainer that sends it weights. Some calls are for this one alone.
  // -1: none.
  int publisher = -1;
};

// PermissionDenied names the role found, the role needed and the call. `callers` may be empty.
absl::Status CheckMayCall(const std::vector<CallerIdentity>& callers,
                          const ServedCallers& served,
                          std::string_view method);

// PermissionDenied unless one of `callers` is worker `rank` of `role` ("trainer", "rollout") in
// `project`.
absl::Status CheckIsWorker(const std::vector<CallerIdentity>& callers,
                           const std::string& project,
                           std::string_view role,
                           int rank);

}  // namespace tandem
