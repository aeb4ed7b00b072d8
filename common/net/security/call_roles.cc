#include "common/net/security/call_roles.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/status.h"

namespace tandem {
namespace {

// Who may make a call.
struct MayCall {
  RoleNames roles;
  // Of trainers only the one that sends the server its weights: another must not replace or read
  // them.
  bool of_publisher = false;
};

const MayCall kController = {{"controller"}};
const MayCall kTrainer = {{"trainer"}};
const MayCall kPublisher = {{"trainer"}, true};
const MayCall kControllerOrTrainer = {{"controller", "trainer"}};
const MayCall kControllerOrPublisher = {{"controller", "trainer"}, true};
const MayCall kWorkers = {WorkerRoles()};
const MayCall kAgent = {{"agent"}};
const MayCall kOperator = {{"operator"}};
const MayCall kUsers = {{"user", "operator"}};
const MayCall kEveryone = {AllRoles()};
const MayCall kNobody = {};

bool NamesRole(const MayCall& may, std::string_view role) {
  return std::find(may.roles.begin(), may.roles.end(), role) != may.roles.end();
}

// The table. Each method of each service stands here (tests/common/net/call_roles_test.cc).
const std::map<std::string_view, const MayCall*>& Table() {
  static const std::map<std::string_view, const MayCall*> table = {
      {"/tandem.v1.ClusterService/Register", &kWorkers},
      {"/tandem.v1.ClusterService/Heartbeat", &kWorkers},
      {"/tandem.v1.ClusterService/StreamSamples", &kTrainer},
      {"/tandem.v1.ClusterService/PutLogProbs", &kTrainer},

      {"/tandem.v1.AgentService/Heartbeat", &kAgent},

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
      {"/tandem.v1.RolloutService/BeginUpdate", &kPublisher},
      {"/tandem.v1.RolloutService/ApplyBucket", &kPublisher},
      {"/tandem.v1.RolloutService/CommitUpdate", &kPublisher},
      {"/tandem.v1.RolloutService/AbortUpdate", &kControllerOrPublisher},
      {"/tandem.v1.RolloutService/GetDigests", &kControllerOrPublisher},
      {"/tandem.v1.RolloutService/ReadTensor", &kControllerOrPublisher},

      {"/tandem.v1.RewardService/Score", &kController},
  };
  return table;
}

constexpr std::string_view kHealth = "/grpc.health.v1.Health/";
constexpr std::string_view kReflection = "/grpc.reflection.v1alpha.ServerReflection/";

const MayCall& RuleFor(std::string_view method) {
  if (method.starts_with(kHealth) || method.starts_with(kReflection)) return kEveryone;
  const auto found = Table().find(method);
  return found == Table().end() ? kNobody : *found->second;
}

// Whether a caller of that role may make the call as a worker of any rank, or as the publisher.
bool IsOfRank(const CallerIdentity& caller, const MayCall& may, int publisher) {
  return !may.of_publisher || !NamesRole(kWorkers, caller.role) || caller.rank < 0 ||
         caller.rank == publisher;
}

// "controller or trainer of rank 1"; of a server without publisher "controller or trainer without a
// rank", as a certificate for one rank alone is of no use there.
std::string RolesText(const MayCall& may, int publisher) {
  std::string text = fmt::format("{}", fmt::join(may.roles, " or "));
  if (may.of_publisher) {
    text += publisher < 0 ? " without a rank" : fmt::format(" of rank {}", publisher);
  }
  return text;
}

absl::Status Denied(const std::string& message) {
  return MakeStatus(absl::StatusCode::kPermissionDenied, "{}", message);
}

}  // namespace

const RoleNames& RolesFor(std::string_view method) { return RuleFor(method).roles; }

std::string_view MethodText(std::string_view method) {
  if (method.starts_with(kHealth)) return "a health check";
  if (method.starts_with(kReflection)) return "reflection";
  const auto found = Table().find(method);
  return found == Table().end() ? "an unknown method" : found->first;
}

absl::Status CheckMayCall(const std::vector<CallerIdentity>& callers,
                          const ServedCallers& served,
                          std::string_view method) {
  const MayCall& may = RuleFor(method);
  for (const CallerIdentity& caller : callers) {
    if (caller.project != served.project || !NamesRole(may, caller.role)) continue;
    if (IsOfRank(caller, may, served.publisher)) return absl::OkStatus();
  }
  if (may.roles.empty())
    return Denied(fmt::format("{} is not a call that a role may make", method));
  return Denied(fmt::format("{} needs the role {} of project {}; the caller's certificate {}",
                            method, RolesText(may, served.publisher), served.project,
                            IdentitiesText(callers)));
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
                  role, rank, project, IdentitiesText(callers)));
}

}  // namespace tandem
