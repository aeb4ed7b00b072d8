// Generation on all rollouts, whatever happens to some of them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <absl/status/status.h>
#include <absl/time/time.h>

#include "controller/rollouts/rollout_dispatcher.h"
#include "controller/rollouts/rollout_rejoin.h"
#include "controller/rollouts/weight_sync.h"
#include "controller/store/progress.h"
#include "controller/workers/restart_budget.h"
#include "controller/workers/rollout_calls.h"
#include "controller/workers/worker_pool.h"

namespace tandem {

struct ServingOptions {
  int64_t max_in_flight_samples = 128;  // per rollout
  absl::Duration register_timeout = absl::Seconds(60);
  std::function<bool()> interrupted;
};

// Whose restarts pay for a rollout that is lost: the run's, or those of one call of a user, which
// leave the run's as they are.
enum class Payer { kRun, kUserCall };

struct ServeOptions {
  Payer payer = Payer::kRun;
  // What a rollout of this rank is asked for besides when it is back; empty: nothing.
  std::function<std::vector<GroupRequest>(int rank)> on_return;
  // RolloutDispatcher::Options::cut. Not asked again once it was true. Rollouts that were lost are
  // waited for even so: all serve when Generate returns.
  std::function<bool()> cut;
};

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

  // Generates every sample of `groups` with weight `version`, as far as it is not cut; `on_sample`
  // runs on this thread, once per sample id. When a rollout is lost the others take its groups and
  // go on, while the lost one is waited for, synced, and given prompts again; all serve when this
  // returns. Cancelled: interrupted. Internal: a group was given up, all serve again. Else as
  // RolloutDispatcher and WeightSync; the others are stopped as soon as a lost one cannot come
  // back.
  absl::Status Generate(std::vector<GroupRequest> groups,
                        int64_t version,
                        const std::function<absl::Status(Sample)>& on_sample,
                        const ServeOptions& how = {});

  // Rollouts that are there and hold `version`.
  std::vector<Replica> Present(int64_t version);
  int64_t max_in_flight_samples() const { return options_.max_in_flight_samples; }

  // Runs `call` on all rollouts at once, on a thread for each. One that fails as if gone, or that
  // does not hold `version`, is waited for, synced to it and asked again; `on_return` runs in
  // between. Any other failure is returned with the names of all rollouts that had one, when all
  // have answered.
  absl::Status OnAll(
      int64_t version,
      const RolloutCall& call,
      const std::function<absl::Status(const std::vector<int>& ranks)>& on_return = {});

 private:
  ReturningRollouts Returning(int64_t version, RestartBudget& budget);
  // Those that hold `version`; the others are lost.
  std::vector<Replica> Replicas(int64_t version, ReturningRollouts& returning);

  WorkerPool& pool_;
  WeightSync& weights_;
  RestartBudget& budget_;
  ProgressSink& progress_;
  const ServingOptions options_;
};

}  // namespace tandem
