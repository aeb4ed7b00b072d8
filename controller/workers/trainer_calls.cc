#include "controller/workers/trainer_calls.h"

#include <fmt/format.h>

#include "common/base/progress.h"
#include "controller/workers/running_calls.h"

namespace tandem {

absl::Status AttributeFailure(WorkerPool& pool,
                              int rank,
                              int64_t incarnation,
                              std::optional<int> partner,
                              const absl::Status& status) {
  const WorkerKey trainer{WorkerRole::kTrainer, rank};
  if (absl::IsCancelled(status)) {
    return absl::CancelledError(trainer.Text() + " sends no heartbeats; its call was cancelled");
  }
  if (OriginOf(status) == FailureOrigin::kPartner && partner) {
    const WorkerKey rollout{WorkerRole::kRollout, *partner};
    const auto client = pool.rollout(*partner);
    if (absl::IsUnavailable(status) && client.ok()) {
      pool.MarkLost(rollout, (*client)->incarnation());
    }
    return Annotate(status, fmt::format("{} (reported by {})", rollout.Text(), trainer.Text()));
  }
  const bool own = OriginOf(status) == FailureOrigin::kHere;
  if (absl::IsUnavailable(status) && own && !AnsweredByWorker(status)) {
    pool.MarkLost(trainer, incarnation);
  }
  return Annotate(status, trainer.Text());
}

absl::StatusOr<std::vector<std::shared_ptr<TrainerClient>>> ClientsOfAllTrainers(WorkerPool& pool) {
  std::vector<std::shared_ptr<TrainerClient>> clients;
  for (int rank = 0; rank < pool.topology().trainers; ++rank) {
    TANDEM_ASSIGN_OR_RETURN(auto client, pool.trainer(rank));
    clients.push_back(std::move(client));
  }
  return clients;
}

TrainerCalls::TrainerCalls(WorkerPool& pool,
                           std::vector<std::shared_ptr<TrainerClient>> clients,
                           const TrainerCallOptions& options)
    : pool_(pool), clients_(std::move(clients)), options_(options), running_(clients_.size()) {}

void TrainerCalls::End(int rank, const absl::Status& status) {
  const auto called = options_.rollouts.find(rank);
  const auto partner =
      called == options_.rollouts.end() ? std::nullopt : std::optional<int>(called->second);
  const int64_t incarnation = clients_[static_cast<size_t>(rank)]->incarnation();
  const MutexLock lock(calls_mutex_);
  --running_;
  if (FailureSpecificity(status) > FailureSpecificity(failure_)) {
    failure_ = AttributeFailure(pool_, rank, incarnation, partner, status);
  }
  changed_.NotifyAll();
}

absl::Status TrainerCalls::failure() const {
  const MutexLock lock(calls_mutex_);
  return failure_;
}

bool TrainerCalls::WaitUntil(std::chrono::steady_clock::time_point until,
                             bool or_failure,
                             bool or_cause) {
  NoteProgress();  // the calls have limits of their own
  const MutexLock lock(calls_mutex_);
  while (true) {
    const bool caused = OriginOf(failure_) != FailureOrigin::kAnotherRank;
    if (running_ == 0 || (or_failure && !failure_.ok()) || (or_cause && caused)) return true;
    if (!changed_.WaitUntil(calls_mutex_, until)) return running_ == 0;
  }
}

absl::Status TrainerCalls::Wait() {
  using std::chrono::steady_clock;
  while (!WaitUntil(steady_clock::now() + kInterruptPoll, true, false)) {
    if (!options_.interrupted || !options_.interrupted()) continue;
    const MutexLock lock(calls_mutex_);
    if (failure_.ok()) failure_ = absl::CancelledError("interrupted");
    break;
  }
  (void)WaitUntil(steady_clock::now() + options_.grace, false, true);
  if (!WaitUntil(steady_clock::now(), false, false)) {
    for (const auto& client : clients_) client->CancelAll();
  }
  while (!WaitUntil(steady_clock::now() + kInterruptPoll, false, false)) {
  }
  return failure();
}

}  // namespace tandem
