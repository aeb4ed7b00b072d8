#include "common/net/security/call_roles.h"

#include <algorithm>
#include <map>

#include <absl/strings/numbers.h>
#include <absl/strings/str_split.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/status.h"

namespace tandem {
namespace {

constexpr std::string_view kTrustDomain = "spiffe://tandem/";

const RoleNames kController = {"controller"};
const RoleNames kTrainer = {"trainer"};
const RoleNames kControllerOrTrainer = {"controller", "trainer"};
const RoleNames kWorkers = {"trainer", "rollout"};
const RoleNames kOperator = {"operator"};
const RoleNames kUsers = {"user", "operator"};
const RoleNames kEveryone = {"controller", "trainer", "rollout", "user", "operator"};
const RoleNames kNobody = {};

// The table. Each method of each service stands here (tests/common/net/call_roles_test.cc).
const std::map<std::string_view, const RoleNames*>& Table() {
  static const std::map<std::string_view, const RoleNames*> table = {
      {"/tandem.v1.ClusterService/Register", &kWorkers},
      {"/tandem.v1.ClusterService/Heartbeat", &kWorkers},
      {"/tandem.v1.ClusterService/StreamSamples", &kTrainer},
      {"/tandem.v1.ClusterService/PutLogProbs", &kTrainer},

      {"/tandem.v1.TandemService/GetStatus", &kUsers},
      {"/tandem.v1.TandemService/WaitOperation", &kUsers},
      {"/tandem.v1.TandemService/ListSteps", &kUsers},
      {"/tandem.v1.TandemService/ListSamples", &kUsers},
      {"/tandem.v1.TandemService/Generate", &kUsers},
      {"/tandem.v1.TandemService/Run", &kOperator},
      {"/tandem.v1.TandemService/Step", &kOperator},
      {"/tandem.v1.TandemService/Pause", &kOperator},
      {"/tandem.v1.TandemService/Resume", &kOperator},
      {"/tandem.v1.TandemService/Stop", &kOperator},
      {"/tandem.v1.TandemService/Evaluate", &kOperator},      // holds up training for minutes
      {"/tandem.v1.TandemService/CheckWeights", &kOperator},  // reads a folder that the call names

      {"/tandem.v1.TrainerService/Reset", &kController},
      {"/tandem.v1.TrainerService/ForwardBackward", &kController},
      {"/tandem.v1.TrainerService/OptimizerStep", &kController},
      {"/tandem.v1.TrainerService/ComputeLogProbs", &kController},
      {"/tandem.v1.TrainerService/SyncWeights", &kController},
      {"/tandem.v1.TrainerService/CheckWeights", &kController},
      {"/tandem.v1.TrainerService/SaveState", &kController},
      {"/tandem.v1.TrainerService/GetStatus", &kController},
      {"/tandem.v1.TrainerService/Shutdown", &kController},

      {"/tandem.v1.RolloutService/Generate", &kController},
      {"/tandem.v1.RolloutService/Abort", &kController},
      {"/tandem.v1.RolloutService/Sleep", &kController},
      {"/tandem.v1.RolloutService/Wake", &kController},
      {"/tandem.v1.RolloutService/VerifyWeights", &kController},
      {"/tandem.v1.RolloutService/GetStatus", &kControllerOrTrainer},
      {"/tandem.v1.RolloutService/Shutdown", &kController},
      {"/tandem.v1.RolloutService/BeginUpdate", &kTrainer},
      {"/tandem.v1.RolloutService/ApplyBucket", &kTrainer},
      {"/tandem.v1.RolloutService/CommitUpdate", &kTrainer},
      {"/tandem.v1.RolloutService/AbortUpdate", &kControllerOrTrainer},
      {"/tandem.v1.RolloutService/GetDigests", &kControllerOrTrainer},
      {"/tandem.v1.RolloutService/ReadTensor", &kControllerOrTrainer},

      {"/tandem.v1.RewardService/Score", &kController},
  };
  return table;
}

constexpr std::string_view kHealth = "/grpc.health.v1.Health/";
constexpr std::string_view kReflection = "/grpc.reflection.v1alpha.ServerReflection/";

bool IsKnownRole(std::string_view role) {
  return std::find(kEveryone.begin(), kEveryone.end(), role) != kEveryone.end();
}

absl::StatusOr<CallerIdentity> ParseIdentity(const std::string& uri) {
  const std::vector<std::string> parts = absl::StrSplit(uri.substr(kTrustDomain.size()), '/');
  CallerIdentity caller;
  const bool ranked =
      parts.size() == 3 && std::find(kWorkers.begin(), kWorkers.end(), parts[1]) != kWorkers.end();
  if ((parts.size() == 2 || ranked) && !parts[0].empty() && IsKnownRole(parts[1]) &&
      (!ranked ||
       (absl::SimpleAtoi(parts[2], &caller.rank) && caller.rank >= 0 && caller.rank <= kMaxRank))) {
    caller.project = parts[0];
    caller.role = parts[1];
    return caller;
  }
  return InvalidArgument(
      "the certificate's URI {} is not spiffe://tandem/PROJECT/ROLE, with ROLE one of {}, or the "
      "same of a worker and /RANK",
      uri, fmt::join(kEveryone, ", "));
}

absl::Status Denied(const std::string& message) {
  return MakeStatus(absl::StatusCode::kPermissionDenied, "{}", message);
}

// What a certificate says, for messages.
std::string Found(const std::vector<CallerIdentity>& callers) {
  if (callers.empty()) {
    return "names none: it needs a subjectAltName URI:spiffe://tandem/PROJECT/ROLE";
  }
  std::vector<std::string> uris;
  for (const CallerIdentity& caller : callers) uris.push_back(caller.Uri());
  return fmt::format("has {}", fmt::join(uris, ", "));
}

}  // namespace

const RoleNames& RolesFor(std::string_view method) {
  if (method.starts_with(kHealth) || method.starts_with(kReflection)) return kEveryone;
  const auto found = Table().find(method);
  return found == Table().end() ? kNobody : *found->second;
}

std::string_view MethodText(std::string_view method) {
  if (method.starts_with(kHealth)) return "a health check";
  if (method.starts_with(kReflection)) return "reflection";
  const auto found = Table().find(method);
  return found == Table().end() ? "an unknown method" : found->first;
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

absl::Status CheckMayCall(const std::vector<CallerIdentity>& callers,
                          const std::string& project,
                          std::string_view method) {
  const RoleNames& roles = RolesFor(method);
  for (const CallerIdentity& caller : callers) {
    if (caller.project != project) continue;
    if (std::find(roles.begin(), roles.end(), caller.role) != roles.end()) return absl::OkStatus();
  }
  if (roles.empty()) return Denied(fmt::format("{} is no call that a role may make", method));
  return Denied(fmt::format("{} needs the role {} of project {}; the caller's certificate {}",
                            method, fmt::join(roles, " or "), project, Found(callers)));
}

absl::Status CheckIsWorker(const std::vector<CallerIdentity>& callers,
                           const std::string& project,
                           std::string_view role,
                           int rank) {
  for (const CallerIdentity& caller : callers) {
    if (caller.project != project || caller.role != role) continue;
    if (caller.rank < 0 || caller.rank == rank) return absl::OkStatus();
  }
  return Denied(
      fmt::format("the call is made for {} {} of project {}, and the caller's certificate "
                  "{}",
                  role, rank, project, Found(callers)));
}

}  // namespace tandem
