// Collective calls, which are made on every trainer at once.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/base/mutex.h"
#include "common/base/progress.h"
#include "common/base/status.h"
#include "controller/workers/sync_routes.h"
#include "controller/workers/worker_pool.h"

namespace tandem {

// True for codes that mean that a peer is lost, late or replaced and may come back.
inline bool IsPeerFailure(const absl::Status& status) {
  if (WorkerDidNotReturn(status)) return false;
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsAborted(status) || absl::IsCancelled(status);
}

// Replaces the message of `status` and keeps code and payloads.
inline absl::Status WithMessage(const absl::Status& status, const std::string& message) {
  if (status.ok()) return status;
  absl::Status other(status.code(), message);
  status.ForEachPayload([&other](absl::string_view url, const absl::Cord& payload) {
    other.SetPayload(url, payload);
  });
  return other;
}

// Orders failures so that the root cause is reported: a rank's own error first, then errors of
// ranks that noticed it, then calls that the controller cancelled.
inline int FailureSpecificity(const absl::Status& status) {
  if (status.ok()) return 0;
  if (absl::IsCancelled(status)) return 1;
  return OriginOf(status) == FailureOrigin::kAnotherRank ? 2 : 3;
}

// How often a caller that waits for workers asks whether it was interrupted.
inline constexpr std::chrono::milliseconds kInterruptPoll{50};

// How long a failed rank may take to answer after another rank has noticed its failure, where a
// caller sets no TrainerCallOptions::grace.
inline constexpr std::chrono::seconds kRootCauseGrace{3};

// Prefixes `status`, the result of a call to trainer `rank`, with the name of the worker that
// failed, and marks that worker lost if it did not answer. `partner`: the rollout that the trainer
// called; nullopt: unknown.
inline absl::Status AttributeFailure(WorkerPool& pool,
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

struct TrainerCallOptions {
  // Polled (empty: never); when it returns true, all calls are cancelled and the result is
  // Cancelled.
  std::function<bool()> interrupted;
  // How long the rank that failed may take to answer after another rank has noticed the failure.
  std::chrono::milliseconds grace = kRootCauseGrace;
  // For calls in which trainers call the rollouts of these routes, whose failures they report.
  const SyncRoutes* routes = nullptr;
};

// Runs `call(TrainerClient&, rank) -> StatusOr<Result>` on all ranks, one thread each, and returns
// the results by rank. A failure cancels the calls to the other ranks, which would otherwise wait
// for the failed one. A failure that only reports that another rank failed leaves that rank
// `options.grace` to answer first. The most specific failure (FailureSpecificity) is returned, the
// first of equals, prefixed with the rank.
template <typename Result, typename Call>
absl::StatusOr<std::vector<Result>> CallAllTrainers(WorkerPool& pool,
                                                    const Call& call,
                                                    const TrainerCallOptions& options = {}) {
  std::vector<std::shared_ptr<TrainerClient>> clients;
  for (int rank = 0; rank < pool.pairs(); ++rank) {
    TANDEM_ASSIGN_OR_RETURN(auto client, pool.trainer(rank));
    clients.push_back(std::move(client));
  }
  struct {
    Mutex mutex;
    ConditionVariable changed;
    size_t running ABSL_GUARDED_BY(mutex);
    std::vector<Result> results ABSL_GUARDED_BY(mutex);
    absl::Status failure ABSL_GUARDED_BY(mutex);
  } answers{.running = clients.size(), .results = std::vector<Result>(clients.size())};
  const auto run = [&](size_t rank) {
    TrainerClient& client = *clients[rank];
    absl::StatusOr<Result> result = call(client, static_cast<int>(rank));
    const MutexLock lock(answers.mutex);
    --answers.running;
    answers.changed.NotifyAll();
    if (result.ok()) {
      answers.results[rank] = std::move(result).value();
    } else if (FailureSpecificity(result.status()) > FailureSpecificity(answers.failure)) {
      const int trainer = static_cast<int>(rank);
      const auto partner =
          options.routes != nullptr ? options.routes->RolloutOf(trainer) : std::nullopt;
      answers.failure =
          AttributeFailure(pool, trainer, client.incarnation(), partner, result.status());
    }
  };
  std::vector<std::jthread> threads;
  for (size_t rank = 0; rank < clients.size(); ++rank) threads.emplace_back(run, rank);
  {
    using std::chrono::steady_clock;
    const MutexLock lock(answers.mutex);
    while (answers.running > 0 && answers.failure.ok()) {
      NoteProgress();  // the calls have limits of their own
      (void)answers.changed.WaitUntil(answers.mutex, steady_clock::now() + kInterruptPoll);
      if (answers.running == 0 || !answers.failure.ok()) break;
      if (options.interrupted && options.interrupted())
        answers.failure = absl::CancelledError("interrupted");
    }
    const auto graceful_until = steady_clock::now() + options.grace;
    while (answers.running > 0 && OriginOf(answers.failure) == FailureOrigin::kAnotherRank &&
           answers.changed.WaitUntil(answers.mutex, graceful_until)) {
    }
    // A thread may not have started its call yet, so cancel repeatedly until all have returned.
    while (answers.running > 0) {
      NoteProgress();
      for (const auto& client : clients) client->CancelAll();
      (void)answers.changed.WaitUntil(answers.mutex, steady_clock::now() + kInterruptPoll);
    }
  }
  threads.clear();
  const MutexLock lock(answers.mutex);
  TANDEM_RETURN_IF_ERROR(answers.failure);
  return std::move(answers.results);
}

}  // namespace tandem
