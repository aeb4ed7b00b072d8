// Generates on all rollouts and survives the loss of some of them.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
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

struct RolloutFleetOptions {
  int64_t max_in_flight_samples = 128;                        // per rollout
  int64_t vocab_limit = std::numeric_limits<int32_t>::max();  // RolloutDispatcher::Options
  absl::Duration register_timeout = absl::Seconds(60);
  std::function<bool()> interrupted;
};

// Which restart budget a lost rollout is charged to: the run's, or one of the user's call alone,
// which leaves the run's unchanged.
enum class BudgetOwner { kRun, kUserCall };

struct FleetGenerateOptions {
  BudgetOwner budget_owner = BudgetOwner::kRun;
  // Further requests for a rollout of this rank that has rejoined; empty: none.
  std::function<std::vector<GroupRequest>(int rank)> on_rejoin;
  // RolloutDispatcher::Options::end_round. Not polled again once it returned true. Generate waits
  // for lost rollouts even then, so that all serve when it returns.
  std::function<bool()> end_round;
  // Whether the caller has gone, polled between samples; Generate then ends with Cancelled.
  std::function<bool()> abandoned;
};

// Not thread-safe.
class RolloutFleet {
 public:
  RolloutFleet(WorkerPool& pool,
               WeightSync& weights,
               RestartBudget& budget,
               ProgressSink& progress,
               RolloutFleetOptions options)
      : pool_(pool),
        weights_(weights),
        budget_(budget),
        progress_(progress),
        options_(std::move(options)) {}

  // Generates every sample of `groups` with weight version `version`, unless the round ends early;
  // `on_sample` runs on this thread, once per sample id. When a rollout is lost the others take
  // over its groups, while its successor is awaited, receives the weights and takes groups again.
  // All rollouts serve when this returns. Cancelled: interrupted. Internal: a group was abandoned;
  // all rollouts serve. Otherwise as RolloutDispatcher and WeightSync; generation stops as soon as
  // a lost rollout is known not to return.
  absl::Status Generate(std::vector<GroupRequest> groups,
                        int64_t version,
                        const std::function<absl::Status(Sample)>& on_sample,
                        const FleetGenerateOptions& how = {});

  // Rollouts that are registered and hold `version`.
  std::vector<Replica> Present(int64_t version);
  int64_t max_in_flight_samples() const { return options_.max_in_flight_samples; }
  int64_t vocab_limit() const { return options_.vocab_limit; }

  // Calls all rollouts at once. A rollout whose process is lost, or that
  // does not hold `version`, is brought back and called again; `on_rejoin` runs in between. Any
  // other failure is returned once all have answered, with the names of all rollouts that failed.
  absl::Status CallAll(
      int64_t version,
      const RolloutCall& call,
      const std::function<absl::Status(const std::vector<int>& ranks)>& on_rejoin = {});

 private:
  RolloutRejoin MakeRejoin(int64_t version, RestartBudget& budget);
  // Rollouts that hold `version`; the others are reported to `rejoin` as lost.
  std::vector<Replica> Replicas(int64_t version, RolloutRejoin& rejoin);

  WorkerPool& pool_;
  WeightSync& weights_;
  RestartBudget& budget_;
  ProgressSink& progress_;
  const RolloutFleetOptions options_;
};

}  // namespace tandem
