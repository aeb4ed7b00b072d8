// Collective calls, which are made on every trainer at once.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/base/thread_annotations.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "controller/workers/done.h"
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

// How long a failed rank may take to answer after another rank has noticed its failure, where a
// caller sets no TrainerCallOptions::grace.
inline constexpr std::chrono::seconds kRootCauseGrace{3};

// Prefixes `status`, the result of a call to trainer `rank`, with the name of the worker that
// failed, and marks that worker lost if it did not answer. `partner`: the rollout that the trainer
// called; nullopt: unknown.
absl::Status AttributeFailure(WorkerPool& pool,
                              int rank,
                              int64_t incarnation,
                              std::optional<int> partner,
                              const absl::Status& status);

struct TrainerCallOptions {
  // Polled (empty: never); when it returns true, all calls are cancelled and the result is
  // Cancelled.
  std::function<bool()> interrupted;
  // How long the rank that failed may take to answer after another rank has noticed the failure.
  std::chrono::milliseconds grace = kRootCauseGrace;
  // For calls in which trainers call these rollouts, whose failures they report.
  RolloutOfTrainer rollouts = {};
};

// Calls to all trainers that are under way, and the failure that counts so far. Shared with the
// calls; thread-safe.
class TrainerCalls {
 public:
  // The clients of all ranks. `pool` must live until every call has ended.
  TrainerCalls(WorkerPool& pool,
               std::vector<std::shared_ptr<TrainerClient>> clients,
               const TrainerCallOptions& options);

  // The call to `rank` has ended.
  void End(int rank, const absl::Status& status);
  // Returns when all have ended, with what CallAllTrainers returns of them.
  absl::Status Wait();

 private:
  absl::Status failure() const;
  // Whether all have ended by `until`; true as well when one has failed, if `or_failure`, or when
  // one says more than that another failed, if `or_cause`.
  bool WaitUntil(std::chrono::steady_clock::time_point until, bool or_failure, bool or_cause);

  WorkerPool& pool_;
  const std::vector<std::shared_ptr<TrainerClient>> clients_;  // by rank
  const TrainerCallOptions options_;
  mutable Mutex calls_mutex_;
  ConditionVariable changed_;
  size_t running_ ABSL_GUARDED_BY(calls_mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(calls_mutex_);
};

absl::StatusOr<std::vector<std::shared_ptr<TrainerClient>>> ClientsOfAllTrainers(WorkerPool& pool);

// Makes `call(TrainerClient&, rank, Done<Result>)` on all ranks at once, without a thread for each,
// and returns the results by rank. A failure cancels the calls to the other ranks, which would
// otherwise wait for the failed one. A failure that only reports that another rank failed leaves
// that rank `options.grace` to answer first. The most specific failure (FailureSpecificity) is
// returned, the first of equals, prefixed with the rank.
template <typename Result, typename Call>
absl::StatusOr<std::vector<Result>> CallAllTrainers(WorkerPool& pool,
                                                    const Call& call,
                                                    const TrainerCallOptions& options = {}) {
  TANDEM_ASSIGN_OR_RETURN(const auto clients, ClientsOfAllTrainers(pool));
  const auto calls = std::make_shared<TrainerCalls>(pool, clients, options);
  const auto results = std::make_shared<std::vector<Result>>(clients.size());
  for (size_t i = 0; i < clients.size(); ++i) {
    const int rank = static_cast<int>(i);
    const auto end = [calls, results, i, rank](absl::StatusOr<Result> result) {
      const absl::Status status = result.status();
      if (status.ok()) (*results)[i] = *std::move(result);
      calls->End(rank, status);
    };
    call(*clients[i], rank, Done<Result>(end));
  }
  TANDEM_RETURN_IF_ERROR(calls->Wait());
  return std::move(*results);
}

}  // namespace tandem
