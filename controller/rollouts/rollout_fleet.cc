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

ReturningRollouts Serving::Returning(int64_t version, RestartBudget& budget) {
  return {pool_,
          weights_,
          budget,
          progress_,
          {.version = version,
           .register_timeout = options_.register_timeout,
           .interrupted = options_.interrupted}};
}

std::vector<Replica> Serving::Replicas(int64_t version, ReturningRollouts& returning) {
  const std::vector<int> behind = weights_.Behind(version);
  std::vector<Replica> replicas;
  for (int rank = 0; rank < pool_.pairs(); ++rank) {
    auto client = pool_.rollout(rank);
    Replica replica{.rank = rank, .client = client.ok() ? *client : nullptr};
    if (std::count(behind.begin(), behind.end(), rank) == 0) {
      replicas.push_back(std::move(replica));
    } else {
      returning.Lost({.rank = rank},
                     MakeStatus(absl::StatusCode::kUnavailable,
                                "rollout {} does not hold weight version {}", rank, version));
    }
  }
  return replicas;
}

std::vector<Replica> Serving::Present(int64_t version) {
  const std::vector<int> behind = weights_.Behind(version);
  std::vector<Replica> replicas;
  for (int rank = 0; rank < pool_.pairs(); ++rank) {
    auto client = pool_.rollout(rank);
    if (!client.ok() || std::count(behind.begin(), behind.end(), rank) > 0) continue;
    replicas.push_back({.rank = rank, .client = *std::move(client)});
  }
  return replicas;
}

absl::Status Serving::Generate(std::vector<GroupRequest> groups,
                               int64_t version,
                               const std::function<absl::Status(Sample)>& on_sample,
                               const ServeOptions& how) {
  constexpr int64_t kRestartsOfUserCall = 2;
  RestartBudget of_call(kRestartsOfUserCall);
  ReturningRollouts returning = Returning(version, how.payer == Payer::kRun ? budget_ : of_call);
  const auto returned = [&]() -> absl::StatusOr<Joining> {
    Joining joining;
    TANDEM_ASSIGN_OR_RETURN(joining.replicas, returning.Take());
    for (const Replica& replica : joining.replicas) {
      if (how.on_return) Append(joining.groups, how.on_return(replica.rank));
    }
    return joining;
  };
  bool is_cut = false;
  const auto cut = [&] { return is_cut = is_cut || how.cut(); };
  RolloutDispatcher dispatcher(
      {.max_in_flight_samples = options_.max_in_flight_samples,
       .interrupted = options_.interrupted,
       .cut = how.cut ? std::function<bool()>(cut) : nullptr,
       .on_lost =
           [&](const Replica& replica) {
             returning.Lost(replica,
                            MakeStatus(absl::StatusCode::kUnavailable,
                                       "rollout {} was lost while generating", replica.rank));
           },
       .returned = returned});
  while (true) {
    TANDEM_ASSIGN_OR_RETURN(
        DispatchResult result,
        dispatcher.Dispatch(std::move(groups), Replicas(version, returning), on_sample));
    TANDEM_RETURN_IF_ERROR(returning.Wait());
    TANDEM_RETURN_IF_ERROR(result.given_up);
    groups = std::move(result.rest);
    TANDEM_ASSIGN_OR_RETURN(Joining joining, returned());
    Append(groups, std::move(joining.groups));
    if (groups.empty()) return absl::OkStatus();
  }
}

absl::Status Serving::OnAll(
    int64_t version,
    const RolloutCall& call,
    const std::function<absl::Status(const std::vector<int>& ranks)>& on_return) {
  ReturningRollouts returning = Returning(version, budget_);
  std::vector<int> ranks = AllRanks(pool_);
  while (true) {
    std::vector<RolloutAnswer> failures;
    std::vector<int> lost;
    for (const RolloutAnswer& answer : CallRollouts(pool_, ranks, call, options_.interrupted)) {
      if (answer.status.ok()) continue;
      if (IsPeerFailure(answer.status) || absl::IsFailedPrecondition(answer.status)) {
        returning.Lost({.rank = answer.rank, .client = answer.client}, AllAnswered({answer}));
        lost.push_back(answer.rank);
      } else {
        failures.push_back(answer);
      }
    }
    TANDEM_RETURN_IF_ERROR(AllAnswered(failures));
    if (lost.empty()) return absl::OkStatus();
    TANDEM_RETURN_IF_ERROR(returning.Wait());
    if (on_return) TANDEM_RETURN_IF_ERROR(on_return(lost));
    ranks = std::move(lost);
  }
}

}  // namespace tandem
