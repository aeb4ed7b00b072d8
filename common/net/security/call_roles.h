// Who may make which call: the table of roles, and the identity in a certificate.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace tandem {

// The largest rank of a worker in any run; the controller checks that of its own.
inline constexpr int kMaxRank = 4095;

// The names of roles: controller, trainer, rollout, user (reads a run and asks for samples of it),
// operator (drives it as well).
using RoleNames = std::vector<std::string_view>;

// The roles that may call `method`, as gRPC names it ("/tandem.v1.TandemService/Stop"). Empty: the
// method is not in the table, and no role may. Health checks and reflection are for every role.
const RoleNames& RolesFor(std::string_view method);

// `method` for a log: the name of a call in the table, "a health check", "reflection", or "an
// unknown method". A caller's own text must not get into the log.
std::string_view MethodText(std::string_view method);

// What a certificate says of who has it: spiffe://tandem/PROJECT/ROLE, or with "/RANK" for a worker
// of that rank alone.
struct CallerIdentity {
  std::string project, role;
  int rank = -1;  // -1: any

  std::string Uri() const;
};

// The identities among the URIs of a certificate. It has several if one process, or several of one
// host, act in several roles. URIs of other schemes and trust domains are passed over.
// InvalidArgument: one that begins with spiffe://tandem/ and is none of the above.
absl::StatusOr<std::vector<CallerIdentity>> ParseIdentities(const std::vector<std::string>& uris);

// For whom a server answers over TLS.
struct ServedCallers {
  std::string project;
  // Of the worker that serves: some calls are for workers of its rank alone. -1: none.
  int rank = -1;
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
