// Who a peer is, by the URIs in its certificate.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace tandem {

// The largest rank of a worker in any run; the controller checks that of its own.
inline constexpr int kMaxRank = 4095;

// The names of roles: controller, trainer, rollout, agent (starts the workers of a host), user
// (reads a run and asks for samples of it), operator (drives it as well).
using RoleNames = std::vector<std::string_view>;
const RoleNames& AllRoles();
// The roles of processes that have a rank.
const RoleNames& WorkerRoles();

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

// What a certificate says, for messages: "has URI, URI", or that it names nobody.
std::string IdentitiesText(const std::vector<CallerIdentity>& callers);

}  // namespace tandem
