// Generation on all rollouts, whatever happens to some of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/time/time.h>

#include "controller/clients/worker_pool.h"
#include "controller/progress.h"
#include "controller/rollout_dispatcher.h"
#include "controller/weight_sync.h"

namespace tandem {

// How many incidents a run forgives. One death may show up several times until everybody is back
// (a trainer reports it, then a call to the dead worker fails): that is one incident, which ends
// when a step or a recovery succeeds. For the train loop's
// thread; spent() is for any.
class RestartBudget {
 public:
  explicit RestartBudget(int64_t limit) : limit_(limit) {}

  // OK, or `reason` with the note that cluster.max_restarts is used up.
  absl::Status Spend(const absl::Status& reason);
  // All is well again: the next failure is a new incident.
  void Settle() { attempts_ = 0; }
  int64_t spent() const { return spent_; }
  int64_t limit() const { return limit_; }

 private:
  const int64_t limit_;
  std::atomic<int64_t> spent_ = 0;
  int attempts_ = 0;  // in the present incident
};

struct ServingOptions {
  int64_t max_in_flight_samples = 128;  // per rollout
  absl::Duration register_timeout = absl::Seconds(60);
  std::function<bool()> interrupted;
};

// Whose restarts pay for a rollout that is lost: the run's, or those of one call of a user, which
// leave the run's as they are.
enum class Payer { kRun, kUserCall };

// Not thread-safe.
class Serving {
 public:
  Serving(WorkerPool& pool,
          WeightSync& weights,
          RestartBudget& budget,
          ProgressSink& progress,
          ServingOptions options)
      : pool_(pool),
        weights_(weights),
        budget_(budget),
        progress_(progress),
        options_(std::move(options)) {}

  // Generates every sample of `groups` with weight `version`; `on_sample` runs on this thread, once
  // per sample id. When a rollout is lost the others take its groups; afterwards, or when none is
  // left, the lost ones are waited for and synced again, so that all serve when this returns.
  // Cancelled: interrupted. Internal: a group was given up, all serve again. Else as
  // RolloutDispatcher and WeightSync.
  absl::Status Generate(std::vector<GroupRequest> groups,
                        int64_t version,
                        const std::function<absl::Status(Sample)>& on_sample,
                        Payer payer = Payer::kRun);

  // Runs `call` on each rollout; one that fails as if gone is waited for, synced to `version` and
  // asked again.
  absl::Status OnEach(int64_t version,
                      const std::function<absl::Status(RolloutClient&, int rank)>& call);

 private:
  // Waits until all workers are there and all rollouts serve `version`.
  absl::Status Restore(int64_t version, const absl::Status& reason, RestartBudget& budget);
  std::vector<Replica> Replicas();

  WorkerPool& pool_;
  WeightSync& weights_;
  RestartBudget& budget_;
  ProgressSink& progress_;
  const ServingOptions options_;
};

}  // namespace tandem
