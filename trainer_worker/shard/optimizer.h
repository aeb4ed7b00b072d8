// One optimizer step on this rank's shard: one pass for the global gradient norm, one for clipping,
// AdamW and rounding.
#pragma once

#include <cstdint>
#include <utility>

#include <absl/status/statusor.h>

#include "common/comm/communicator.h"
#include "trainer_worker/shard/adamw.h"
#include "trainer_worker/shard/lr_schedule.h"
#include "trainer_worker/shard/parameter_shard.h"

namespace tandem {

struct OptimizerOptions {
  AdamWOptions adamw;
  LrScheduleOptions schedule;
  double grad_clip = 1.0;
};

struct OptimizerReport {
  double grad_norm = 0;      // before clipping, over all ranks
  double learning_rate = 0;  // that this step used
  bool skipped = false;      // the norm was not finite: nothing was updated
  int64_t changed = 0;       // elements of this rank's rounded copy that changed; -1: not known
};

// Not thread-safe. `steps_done` counts the updates that were made: it is Adam's step counter. The
// schedule counts every call, skipped ones too, as torch's schedulers do.
class Optimizer {
 public:
  explicit Optimizer(OptimizerOptions options) : options_(std::move(options)) {}

  // Collective. Uses shard.gradients(), which stay as they are. ResourceExhausted: no memory for
  // the moments or for streaming; Aborted: another rank has none. No rank has stepped then. After
  // an error of the device itself the ranks' weights differ: only loading them anew helps.
  absl::StatusOr<OptimizerReport> Step(ParameterShard& shard, Communicator& communicator);

  int64_t updates() const { return updates_; }
  int64_t schedule_step() const { return schedule_step_; }
  // From a checkpoint.
  void Restore(int64_t updates, int64_t schedule_step) {
    updates_ = updates;
    schedule_step_ = schedule_step;
  }

 private:
  OptimizerOptions options_;
  int64_t updates_ = 0;
  int64_t schedule_step_ = 0;
};

}  // namespace tandem
