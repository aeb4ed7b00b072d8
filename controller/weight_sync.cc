#include "controller/weight_sync.h"

#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "controller/clients/on_all_trainers.h"

namespace tandem {

std::vector<int> WeightSync::Behind(int64_t version) {
  std::vector<int> ranks;
  for (int rank = 0; rank < pool_.pairs(); ++rank) {
    const auto client = pool_.rollout(rank);
    const Held& held = held_[rank];
    if (!client.ok() || (*client)->incarnation() != held.incarnation || held.version != version) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

bool WeightSync::Complete(int64_t version) { return Behind(version).empty(); }

void WeightSync::Forget() {
  held_.clear();
  pending_.clear();
  checked_.clear();
}

bool WeightSync::CheckDue(const std::map<int, std::shared_ptr<RolloutClient>>& targets) const {
  if (check_ != CheckMode::kFirst) return check_ == CheckMode::kAlways;
  return std::any_of(targets.begin(), targets.end(), [this](const auto& target) {
    const auto checked = checked_.find(target.first);
    return checked == checked_.end() || checked->second != target.second->incarnation();
  });
}

void WeightSync::Forget(const std::vector<int>& ranks) {
  for (const int rank : ranks) {
    held_.erase(rank);
    pending_.erase(rank);
  }
}

absl::Status WeightSync::OnRollouts(const std::vector<int>& ranks,
                                    const std::function<absl::Status(RolloutClient&)>& call) {
  for (const int rank : ranks) {
    const WorkerKey key{WorkerRole::kRollout, rank};
    TANDEM_ASSIGN_OR_RETURN(const auto client, pool_.rollout(rank));
    const absl::Status status = call(*client);
    if (absl::IsUnavailable(status)) pool_.MarkLost(key, client->incarnation());
    TANDEM_RETURN_IF_ERROR(Annotate(status, key.Text()));
  }
  return absl::OkStatus();
}

absl::Status WeightSync::EndStaleUpdates() {
  std::vector<int> ranks;
  for (int rank = 0; rank < pool_.pairs(); ++rank) ranks.push_back(rank);
  return OnRollouts(ranks, [](RolloutClient& client) {
    return client.AbortUpdate("the trainers start again from a checkpoint");
  });
}

absl::StatusOr<PublishResult> WeightSync::Publish(int64_t version, const std::string& hf_oracle) {
  PublishResult result{.ranks = Behind(version)};
  if (result.ranks.empty()) return result;
  for (const int rank : result.ranks) held_.erase(rank);
  pending_.clear();
  TANDEM_RETURN_IF_ERROR(OnRollouts(
      result.ranks, [](RolloutClient& client) { return client.Wake({"weights"}).status(); }));

  std::map<int, std::shared_ptr<RolloutClient>> targets;
  for (const int rank : result.ranks) {
    TANDEM_ASSIGN_OR_RETURN(targets[rank], pool_.rollout(rank));
  }
  const auto publish = [&](TrainerClient& trainer, int rank) {
    SyncCommand command{.version = version, .target_ranks = result.ranks};
    if (const auto target = targets.find(rank); target != targets.end()) {
      command.rollout_address = target->second->address();
      command.rollout_incarnation = target->second->incarnation();
    }
    return trainer.SyncWeights(command);
  };
  auto synced = OnAllTrainers<SyncResult>(pool_, publish);
  if (absl::IsDataLoss(synced.status())) {
    // A digest differed: the rollout is empty now. Once may be bad luck, twice is a fault.
    spdlog::error("{}; publishing once more", std::string(synced.status().message()));
    synced = OnAllTrainers<SyncResult>(pool_, publish);
  }
  TANDEM_RETURN_IF_ERROR(synced.status());
  result.trainers = *std::move(synced);
  for (const SyncResult& sync : result.trainers) {
    result.changed_share = std::max(result.changed_share, sync.changed_share);
    if (result.digest.empty()) result.digest = sync.digest;
  }
  spdlog::info("version {}: weights published, digest {}", version, result.digest);

  if (CheckDue(targets)) {
    TANDEM_ASSIGN_OR_RETURN(const auto checks, Check(hf_oracle));
    result.checked = fmt::format("weight check: {} tensors equal on each of {} rollouts ({})",
                                 checks.front().checked, checks.size(),
                                 hf_oracle.empty() ? "against the trainers" : hf_oracle);
    for (const auto& [rank, client] : targets) checked_[rank] = client->incarnation();
  }
  for (const auto& [rank, client] : targets) pending_[rank] = {client->incarnation(), version};
  return result;
}

absl::StatusOr<std::map<int, PhaseReport>> WeightSync::Wake() {
  std::map<int, PhaseReport> reports;
  const std::map<int, Held> pending = std::exchange(pending_, {});
  for (const auto& [rank, held] : pending) {
    TANDEM_RETURN_IF_ERROR(OnRollouts({rank}, [&, r = rank](RolloutClient& client) -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(reports[r], client.Wake({"kv_cache"}));
      return absl::OkStatus();
    }));
    held_[rank] = held;
  }
  return reports;
}

absl::StatusOr<std::vector<WeightCheckResult>> WeightSync::CheckEach(
    const std::string& hf_checkpoint) {
  const auto check = [&](TrainerClient& trainer, int rank) -> absl::StatusOr<WeightCheckResult> {
    TANDEM_ASSIGN_OR_RETURN(const auto rollout, pool_.rollout(rank));
    return trainer.CheckWeights(rollout->address(), hf_checkpoint);
  };
  return OnAllTrainers<WeightCheckResult>(pool_, check);
}

absl::StatusOr<std::vector<WeightCheckResult>> WeightSync::Check(const std::string& hf_checkpoint) {
  TANDEM_ASSIGN_OR_RETURN(auto results, CheckEach(hf_checkpoint));
  for (size_t rank = 0; rank < results.size(); ++rank) {
    const WeightCheckResult& result = results[rank];
    if (result.ok()) continue;
    return MakeStatus(absl::StatusCode::kDataLoss,
                      "rollout {} does not hold the weights it should: {} tensors checked, {} "
                      "missing, {} unexpected, {} mismatched; first: {}",
                      rank, result.checked, result.missing, result.unexpected, result.mismatched,
                      result.first_difference);
  }
  return results;
}

}  // namespace tandem
