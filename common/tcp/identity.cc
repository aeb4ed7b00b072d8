#include "common/tcp/identity.h"

#include <algorithm>

#include <absl/strings/numbers.h>
#include <absl/strings/str_split.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/status.h"

namespace tandem {
namespace {

constexpr std::string_view kTrustDomain = "spiffe://tandem/";

bool IsAmong(const RoleNames& roles, std::string_view role) {
  return std::find(roles.begin(), roles.end(), role) != roles.end();
}

absl::StatusOr<CallerIdentity> ParseIdentity(const std::string& uri) {
  const std::vector<std::string> parts = absl::StrSplit(uri.substr(kTrustDomain.size()), '/');
  CallerIdentity caller;
  const bool ranked = parts.size() == 3 && IsAmong(WorkerRoles(), parts[1]);
  if ((parts.size() == 2 || ranked) && !parts[0].empty() && IsAmong(AllRoles(), parts[1]) &&
      (!ranked ||
       (absl::SimpleAtoi(parts[2], &caller.rank) && caller.rank >= 0 && caller.rank <= kMaxRank))) {
    caller.project = parts[0];
    caller.role = parts[1];
    return caller;
  }
  return InvalidArgument(
      "the certificate's URI {} is not spiffe://tandem/PROJECT/ROLE, with ROLE one of {}, or the "
      "same of a worker and /RANK",
      uri, fmt::join(AllRoles(), ", "));
}

}  // namespace

const RoleNames& AllRoles() {
  static const RoleNames roles = {"controller", "trainer", "rollout", "agent", "user", "operator"};
  return roles;
}

const RoleNames& WorkerRoles() {
  static const RoleNames roles = {"trainer", "rollout"};
  return roles;
}

std::string CallerIdentity::Uri() const {
  std::string uri = fmt::format("{}{}/{}", kTrustDomain, project, role);
  if (rank >= 0) uri += fmt::format("/{}", rank);
  return uri;
}

absl::StatusOr<std::vector<CallerIdentity>> ParseIdentities(const std::vector<std::string>& uris) {
  std::vector<CallerIdentity> callers;
  for (const std::string& uri : uris) {
    if (!uri.starts_with(kTrustDomain)) continue;
    TANDEM_ASSIGN_OR_RETURN(callers.emplace_back(), ParseIdentity(uri));
  }
  return callers;
}

std::string IdentitiesText(const std::vector<CallerIdentity>& callers) {
  if (callers.empty()) {
    return "names none: it needs a subjectAltName URI:spiffe://tandem/PROJECT/ROLE";
  }
  std::vector<std::string> uris;
  for (const CallerIdentity& caller : callers) uris.push_back(caller.Uri());
  return fmt::format("has {}", fmt::join(uris, ", "));
}

}  // namespace tandem
