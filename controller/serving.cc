#include "controller/serving.h"

#include <set>
#include <utility>

#include <fmt/ranges.h>

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "controller/clients/on_all_trainers.h"

namespace tandem {

absl::Status RestartBudget::Spend(const absl::Status& reason) {
  constexpr int kAttemptsPerIncident = 4;
  if (attempts_ > 0 && attempts_ < kAttemptsPerIncident) {
    ++attempts_;
    return absl::OkStatus();
  }
  if (spent_ >= limit_) {
    return Annotate(reason,
                    fmt::format("gave up after {} recoveries (cluster.max_restarts)", spent()));
  }
  ++spent_;
  attempts_ = 1;
  return absl::OkStatus();
}

std::vector<Replica> Serving::Replicas() {
  std::vector<Replica> replicas;
  for (int rank = 0; rank < pool_.pairs(); ++rank) {
    if (auto client = pool_.rollout(rank); client.ok()) {
      replicas.push_back({.rank = rank, .client = *std::move(client)});
    }
  }
  return replicas;
}

absl::Status Serving::Generate(std::vector<GroupRequest> groups,
                               int64_t version,
                               const std::function<absl::Status(Sample)>& on_sample,
                               Payer payer) {
  constexpr int64_t kRestartsOfUserCall = 2;
  RestartBudget of_call(kRestartsOfUserCall);
  RestartBudget& budget = payer == Payer::kRun ? budget_ : of_call;
  RolloutDispatcher dispatcher({.max_in_flight_samples = options_.max_in_flight_samples,
                                .interrupted = options_.interrupted});
  while (true) {
    const std::vector<Replica> replicas = Replicas();
    TANDEM_ASSIGN_OR_RETURN(DispatchResult result,
                            dispatcher.Dispatch(std::move(groups), replicas, on_sample));
    for (const Replica& replica : replicas) {
      for (const int rank : result.lost_ranks) {
        if (rank != replica.rank) continue;
        pool_.MarkLost({WorkerRole::kRollout, rank}, replica.client->incarnation());
      }
    }
    groups = std::move(result.rest);
    if (groups.empty() && result.lost_ranks.empty()) return absl::OkStatus();
    weights_.Forget(result.lost_ranks);
    TANDEM_RETURN_IF_ERROR(
        Restore(version,
                MakeStatus(absl::StatusCode::kUnavailable, "rollout {} was lost while generating",
                           fmt::join(result.lost_ranks, ", ")),
                budget));
    TANDEM_RETURN_IF_ERROR(result.given_up);
    if (groups.empty()) return absl::OkStatus();
  }
}

absl::Status Serving::OnEach(int64_t version,
                             const std::function<absl::Status(RolloutClient&, int rank)>& call) {
  for (int rank = 0; rank < pool_.pairs();) {
    const auto client = pool_.rollout(rank);
    const absl::Status status = client.ok() ? call(**client, rank) : client.status();
    if (status.ok()) {
      ++rank;
      continue;
    }
    const WorkerKey key{WorkerRole::kRollout, rank};
    if (!IsPeerFailure(status)) return Annotate(status, key.Text());
    if (client.ok()) pool_.MarkLost(key, (*client)->incarnation());
    weights_.Forget({rank});
    TANDEM_RETURN_IF_ERROR(Restore(version, Annotate(status, key.Text()), budget_));
  }
  return absl::OkStatus();
}

absl::Status Serving::Restore(int64_t version, const absl::Status& reason, RestartBudget& budget) {
  TANDEM_RETURN_IF_ERROR(budget.Spend(reason));
  progress_.OnMessage(fmt::format("recovering ({} of {}): {}", budget.spent(), budget.limit(),
                                  std::string(reason.message())));
  TANDEM_RETURN_IF_ERROR(pool_.WaitUntilComplete(options_.register_timeout, options_.interrupted));
  TANDEM_ASSIGN_OR_RETURN(const PublishResult published, weights_.Publish(version, ""));
  if (!published.checked.empty()) progress_.OnMessage(published.checked);
  TANDEM_RETURN_IF_ERROR(weights_.Wake().status());
  budget.Settle();
  return absl::OkStatus();
}

}  // namespace tandem
