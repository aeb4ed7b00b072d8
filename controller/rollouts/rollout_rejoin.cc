#include "controller/rollouts/rollout_rejoin.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/status.h"
#include "controller/workers/trainer_calls.h"

namespace tandem {

RolloutRejoin::RolloutRejoin(WorkerPool& pool,
                             WeightSync& weights,
                             RestartBudget& budget,
                             ProgressSink& progress,
                             RejoinOptions options)
    : pool_(pool),
      weights_(weights),
      budget_(budget),
      progress_(progress),
      options_(std::move(options)),
      trainers_(pool.Members(WorkerRole::kTrainer)) {}

RolloutRejoin::~RolloutRejoin() {
  stop_ = true;
  const OutsideWait wait;
  if (thread_ != nullptr) thread_->Join();
}

void RolloutRejoin::ReportLost(const Replica& replica, absl::Status reason) {
  const WorkerKey rollout{WorkerRole::kRollout, replica.rank};
  int64_t incarnation = 0;
  if (replica.client != nullptr) {
    incarnation = replica.client->incarnation();
    pool_.MarkLost(rollout, incarnation);
    pool_.Reconnect(WorkerProcess{rollout, incarnation});
  }
  lost_.push_back({replica.rank, incarnation, std::move(reason)});
}

absl::StatusOr<std::vector<Replica>> RolloutRejoin::TakeRejoined() {
  if (thread_ != nullptr && done_) Finish();
  if (thread_ == nullptr) Start();
  TANDEM_RETURN_IF_ERROR(failure_);
  return std::exchange(rejoined_, {});
}

absl::Status RolloutRejoin::WaitForAll() {
  for (Start(); thread_ != nullptr; Start()) Finish();
  return failure_;
}

void RolloutRejoin::Start() {
  if (thread_ != nullptr || !failure_.ok()) return;
  ForgetLeftOut(&lost_);
  if (lost_.empty()) return;
  const absl::Status& reason = lost_.front().reason;
  failure_ = budget_.Charge(WorkerRole::kRollout, reason);
  if (!failure_.ok()) return;
  progress_.OnEvent({.severity = "warning",
                     .kind = "loss",
                     .worker = fmt::format("rollout {}", lost_.front().rank),
                     .text = budget_.RecoveringFrom(reason)});
  rejoining_ = std::exchange(lost_, {});
  std::vector<int> ranks;
  for (const Loss& loss : rejoining_) ranks.push_back(loss.rank);
  weights_.Forget(ranks);
  done_ = false;
  thread_ = std::make_unique<NamedThread>("rollout-rejoin", [this] {
    const WorkStep step("rejoin of rollouts");
    synced_ = Sync();
    done_ = true;
  });
}

void RolloutRejoin::ForgetLeftOut(std::vector<Loss>* losses) const {
  std::erase_if(*losses,
                [this](const Loss& loss) { return !pool_.active_rollouts().Contains(loss.rank); });
}

absl::Status RolloutRejoin::Sync() {
  const auto stopped = [this] { return this->stopped(); };
  TANDEM_RETURN_IF_ERROR(pool_.WaitUntilComplete(options_.register_timeout, stopped));
  if (pool_.Members(WorkerRole::kTrainer) != trainers_) {
    return absl::AbortedError("a trainer was lost while rollouts were on their way back");
  }
  TANDEM_ASSIGN_OR_RETURN(WeightSyncResult published, weights_.Sync(options_.version, "", stopped));
  checked_ = std::move(published.checked);
  ranks_ = std::move(published.ranks);
  return weights_.Wake(stopped).status();
}

void RolloutRejoin::ClaimSyncedLosses() {
  const auto mended = [this](const Loss& loss) {
    const auto client = pool_.rollout(loss.rank);
    return client.ok() && (*client)->incarnation() != loss.incarnation &&
           std::count(ranks_.begin(), ranks_.end(), loss.rank) > 0;
  };
  const auto left = std::stable_partition(lost_.begin(), lost_.end(), mended);
  std::move(lost_.begin(), left, std::back_inserter(rejoining_));
  lost_.erase(lost_.begin(), left);
}

void RolloutRejoin::Finish() {
  {
    const OutsideWait wait;  // that thread is watched itself
    thread_->Join();
  }
  thread_.reset();
  if (!checked_.empty()) progress_.OnMessage(std::exchange(checked_, ""));
  if (synced_.ok()) {
    budget_.CloseIncident();
    ClaimSyncedLosses();
    ForgetLeftOut(&rejoining_);
    for (const Loss& loss : std::exchange(rejoining_, {})) {
      auto client = pool_.rollout(loss.rank);
      if (!client.ok()) {
        ReportLost({.rank = loss.rank}, client.status());
        continue;
      }
      const std::string text = fmt::format(
          "rollout {} holds weight version {} again: it was sent "
          "once more",
          loss.rank, options_.version);
      LogInfo("{}", text);
      progress_.OnEvent(
          {.kind = "recovery", .worker = fmt::format("rollout {}", loss.rank), .text = text});
      rejoined_.push_back({.rank = loss.rank, .client = *std::move(client)});
    }
    return;
  }
  // A further rollout was lost during the sync: wait for all of them again.
  const std::vector<Loss> losses = std::exchange(rejoining_, {});
  const bool again =
      IsPeerFailure(synced_) && pool_.Members(WorkerRole::kTrainer) == trainers_ && !stopped();
  if (!again) {
    failure_ = synced_;
    return;
  }
  for (const Loss& loss : losses) ReportLost({.rank = loss.rank}, synced_);
}

}  // namespace tandem
