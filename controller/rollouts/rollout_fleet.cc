#include "controller/rollouts/rollout_fleet.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/base/status.h"
#include "controller/workers/trainer_calls.h"

namespace tandem {
namespace {

void Append(std::vector<GroupRequest>& groups, std::vector<GroupRequest> more) {
  std::move(more.begin(), more.end(), std::back_inserter(groups));
}

}  // namespace

RolloutRejoin RolloutFleet::MakeRejoin(int64_t version, RestartBudget& budget) {
  return {pool_,
          weights_,
          budget,
          progress_,
          {.version = version,
           .register_timeout = options_.register_timeout,
           .interrupted = options_.interrupted}};
}

std::vector<Replica> RolloutFleet::Replicas(int64_t version, RolloutRejoin& rejoin) {
  const std::vector<int> behind = weights_.Behind(version);
  std::vector<Replica> replicas;
  for (const int rank : pool_.active_rollouts().Ranks()) {
    auto client = pool_.rollout(rank);
    Replica replica{.rank = rank, .client = client.ok() ? *client : nullptr};
    if (std::count(behind.begin(), behind.end(), rank) == 0) {
      replicas.push_back(std::move(replica));
    } else {
      rejoin.ReportLost({.rank = rank},
                        MakeStatus(absl::StatusCode::kUnavailable,
                                   "rollout {} does not hold weight version {}", rank, version));
    }
  }
  return replicas;
}

std::vector<Replica> RolloutFleet::Present(int64_t version) {
  const std::vector<int> behind = weights_.Behind(version);
  std::vector<Replica> replicas;
  for (const int rank : pool_.active_rollouts().Ranks()) {
    auto client = pool_.rollout(rank);
    if (!client.ok() || std::count(behind.begin(), behind.end(), rank) > 0) continue;
    replicas.push_back({.rank = rank, .client = *std::move(client)});
  }
  return replicas;
}

absl::Status RolloutFleet::Generate(std::vector<GroupRequest> groups,
                                    int64_t version,
                                    const std::function<absl::Status(Sample)>& on_sample,
                                    const FleetGenerateOptions& how) {
  constexpr int64_t kRestartsOfUserCall = 2;
  RestartBudget of_call(kRestartsOfUserCall);
  RolloutRejoin rejoin =
      MakeRejoin(version, how.budget_owner == BudgetOwner::kRun ? budget_ : of_call);
  const auto rejoined = [&]() -> absl::StatusOr<JoiningReplicas> {
    JoiningReplicas joining;
    TANDEM_ASSIGN_OR_RETURN(joining.replicas, rejoin.TakeRejoined());
    for (const Replica& replica : joining.replicas) {
      if (how.on_rejoin) Append(joining.groups, how.on_rejoin(replica.rank));
    }
    return joining;
  };
  bool ended = false;
  const auto end_round = [&] { return ended = ended || how.end_round(); };
  const auto interrupted = [&] {
    return (options_.interrupted && options_.interrupted()) || (how.abandoned && how.abandoned());
  };
  RolloutDispatcher dispatcher(
      {.max_in_flight_samples = options_.max_in_flight_samples,
       .vocab_limit = options_.vocab_limit,
       .interrupted = interrupted,
       .end_round = how.end_round ? std::function<bool()>(end_round) : nullptr,
       .on_lost =
           [&](const Replica& replica) {
             rejoin.ReportLost(replica,
                               MakeStatus(absl::StatusCode::kUnavailable,
                                          "rollout {} was lost while generating", replica.rank));
           },
       .rejoined = rejoined});
  while (true) {
    TANDEM_ASSIGN_OR_RETURN(
        DispatchResult result,
        dispatcher.Dispatch(std::move(groups), Replicas(version, rejoin), on_sample));
    TANDEM_RETURN_IF_ERROR(rejoin.WaitForAll());
    TANDEM_RETURN_IF_ERROR(result.abandoned);
    groups = std::move(result.unfinished);
    TANDEM_ASSIGN_OR_RETURN(JoiningReplicas joining, rejoined());
    Append(groups, std::move(joining.groups));
    // Nobody else may generate what is for a rollout that has been left out since.
    std::erase_if(groups, [&](const GroupRequest& group) {
      return group.rank >= 0 && !pool_.active_rollouts().Contains(group.rank);
    });
    if (groups.empty()) return absl::OkStatus();
  }
}

absl::Status RolloutFleet::CallAll(
    int64_t version,
    const RolloutCall& call,
    const std::function<absl::Status(const std::vector<int>& ranks)>& on_rejoin) {
  RolloutRejoin rejoin = MakeRejoin(version, budget_);
  std::vector<int> ranks = AllRanks(pool_);
  while (true) {
    std::vector<RolloutAnswer> failures;
    std::vector<int> lost;
    for (const RolloutAnswer& answer : CallRollouts(pool_, ranks, call, options_.interrupted)) {
      if (answer.status.ok()) continue;
      if (IsPeerFailure(answer.status) || absl::IsFailedPrecondition(answer.status)) {
        rejoin.ReportLost({.rank = answer.rank, .client = answer.client}, AllAnswered({answer}));
        lost.push_back(answer.rank);
      } else {
        failures.push_back(answer);
      }
    }
    TANDEM_RETURN_IF_ERROR(AllAnswered(failures));
    if (lost.empty()) return absl::OkStatus();
    TANDEM_RETURN_IF_ERROR(rejoin.WaitForAll());
    if (on_rejoin) TANDEM_RETURN_IF_ERROR(on_rejoin(lost));
    std::erase_if(lost, [&](int rank) { return !pool_.active_rollouts().Contains(rank); });
    ranks = std::move(lost);
    if (ranks.empty()) return absl::OkStatus();
  }
}

}  // namespace tandem
