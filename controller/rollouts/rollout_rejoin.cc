#include "controller/rollouts/rollout_rejoin.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"
#include "controller/workers/trainer_calls.h"

namespace tandem {

ReturningRollouts::ReturningRollouts(WorkerPool& pool,
                                     WeightSync& weights,
                                     RestartBudget& budget,
                                     ProgressSink& progress,
                                     ReturnOptions options)
    : pool_(pool),
      weights_(weights),
      budget_(budget),
      progress_(progress),
      options_(std::move(options)),
      trainers_(pool.TrainerIncarnations()) {}

ReturningRollouts::~ReturningRollouts() {
  stop_ = true;
  if (thread_ != nullptr) thread_->Join();
}

void ReturningRollouts::Lost(const Replica& replica, absl::Status reason) {
  int64_t incarnation = 0;
  if (replica.client != nullptr) {
    incarnation = replica.client->incarnation();
    pool_.MarkLost({WorkerRole::kRollout, replica.rank}, incarnation);
  }
  lost_.push_back({replica.rank, incarnation, std::move(reason)});
}

absl::StatusOr<std::vector<Replica>> ReturningRollouts::Take() {
  if (thread_ != nullptr && done_) Finish();
  if (thread_ == nullptr) Start();
  TANDEM_RETURN_IF_ERROR(failure_);
  return std::exchange(returned_, {});
}

absl::Status ReturningRollouts::Wait() {
  for (Start(); thread_ != nullptr; Start()) Finish();
  return failure_;
}

void ReturningRollouts::Start() {
  if (thread_ != nullptr || lost_.empty() || !failure_.ok()) return;
  const absl::Status& reason = lost_.front().reason;
  failure_ = budget_.Charge(reason);
  if (!failure_.ok()) return;
  progress_.OnMessage(fmt::format("recovering ({} of {}): {}", budget_.spent(), budget_.limit(),
                                  std::string(reason.message())));
  coming_ = std::exchange(lost_, {});
  std::vector<int> ranks;
  for (const Loss& loss : coming_) ranks.push_back(loss.rank);
  weights_.Forget(ranks);
  done_ = false;
  thread_ = std::make_unique<NamedThread>("returning", [this] {
    synced_ = Sync();
    done_ = true;
  });
}

absl::Status ReturningRollouts::Sync() {
  const auto stopped = [this] { return this->stopped(); };
  TANDEM_RETURN_IF_ERROR(pool_.WaitUntilComplete(options_.register_timeout, stopped));
  if (pool_.TrainerIncarnations() != trainers_) {
    return absl::AbortedError("a trainer was lost while rollouts were on their way back");
  }
  TANDEM_ASSIGN_OR_RETURN(PublishResult published, weights_.Publish(options_.version, "", stopped));
  checked_ = std::move(published.checked);
  ranks_ = std::move(published.ranks);
  return weights_.Wake(stopped).status();
}

void ReturningRollouts::TakeAlong() {
  const auto mended = [this](const Loss& loss) {
    const auto client = pool_.rollout(loss.rank);
    return client.ok() && (*client)->incarnation() != loss.incarnation &&
           std::count(ranks_.begin(), ranks_.end(), loss.rank) > 0;
  };
  const auto left = std::stable_partition(lost_.begin(), lost_.end(), mended);
  std::move(lost_.begin(), left, std::back_inserter(coming_));
  lost_.erase(lost_.begin(), left);
}

void ReturningRollouts::Finish() {
  thread_->Join();
  thread_.reset();
  if (!checked_.empty()) progress_.OnMessage(std::exchange(checked_, ""));
  if (synced_.ok()) {
    budget_.CloseIncident();
    TakeAlong();
    for (const Loss& loss : std::exchange(coming_, {})) {
      auto client = pool_.rollout(loss.rank);
      if (!client.ok()) {
        Lost({.rank = loss.rank}, client.status());
        continue;
      }
      const std::string text = fmt::format(
          "rollout {} holds weight version {} again: it was sent "
          "once more",
          loss.rank, options_.version);
      LogInfo("{}", text);
      progress_.OnMessage(text);
      returned_.push_back({.rank = loss.rank, .client = *std::move(client)});
    }
    return;
  }
  // Another rollout was lost meanwhile: all of them are looked for again.
  const std::vector<Loss> losses = std::exchange(coming_, {});
  const bool again =
      IsPeerFailure(synced_) && pool_.TrainerIncarnations() == trainers_ && !stopped();
  if (!again) {
    failure_ = synced_;
    return;
  }
  for (const Loss& loss : losses) Lost({.rank = loss.rank}, synced_);
}

}  // namespace tandem
