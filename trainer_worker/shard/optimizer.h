// Gradient clipping and AdamW in PyTorch's order of operations (torch.optim.AdamW, single tensor,
// no amsgrad).
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <absl/status/statusor.h>

#include "common/comm/communicator.h"
#include "common/ops/ops_types.h"
#include "trainer_worker/shard/parameter_shard.h"

namespace tandem {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
};

// The factors of a step on the arrays (AdamWArrays); every gradient is first multiplied by
// `gradient_scale`. `step` counts from 1. The update is elementwise: the bits do not depend on how
// a tensor is sharded.
AdamWFactors FactorsOf(const AdamWOptions& options, double lr, int64_t step, float gradient_scale);

// The factor by which torch.nn.utils.clip_grad_norm_ multiplies gradients, at most 1.
float ClipFactor(double norm, double max_norm);

// The learning rate of each optimizer step: constant as transformers' constant_with_warmup; cosine
// and warmup-stable-decay (wsd) as in verl (utils torch_functional
// get_{constant,cosine,wsd}_schedule_*; wsd: Hu et al. 2024, MiniCPM, section 4).
struct LrScheduleOptions {
  std::string type = "constant";  // constant, cosine or wsd
  double lr = 1e-6;
  int64_t warmup_steps = 0;    // linear, from 0 (the cosine's: from init_lr_ratio * lr)
  int64_t total_steps = 0;     // length of cosine and wsd, warm-up included
  double min_lr_ratio = 0.0;   // at the end of cosine and wsd, as a fraction of lr
  double init_lr_ratio = 0.0;  // at the start of the cosine's warm-up, as a fraction of lr
  double num_cycles = 0.5;     // of the cosine after the warm-up, and of wsd's decay
  double stable_ratio = 0.9;   // wsd: share of the steps after the warm-up, rounded down to a step
  bool zero_indexed_step = true;  // false: the cosine is one step ahead
};

// The learning rate of optimizer step `step`, counted from 0. After total_steps the cosine
// continues (with num_cycles = 0.5 it rises again, as in verl), and wsd stays at min_lr_ratio.
// Pure. InvalidArgument: unknown type, or a ratio of the cosine outside [0, 1].
absl::StatusOr<double> LearningRate(const LrScheduleOptions& options, int64_t step);

// verl's rule: `steps` if it is above 0, else ratio * total_steps rounded down.
int64_t WarmupSteps(int64_t steps, double ratio, int64_t total_steps);

struct OptimizerOptions {
  AdamWOptions adamw;
  LrScheduleOptions schedule;
  double grad_clip = 1.0;
};

struct OptimizerReport {
  double grad_norm = 0;      // before clipping, over all ranks
  double learning_rate = 0;  // of this step
  bool skipped = false;      // the norm was not finite, so no weight was updated
  int64_t changed = 0;       // changed elements of this rank's rounded copy; -1: unknown
};

// An optimizer step on this rank's shard makes two passes: one computes the global gradient norm;
// one clips, runs AdamW and rounds.
//
// Not thread-safe. updates() counts the updates that were made and is Adam's step counter;
// schedule_step() counts every call, including skipped ones, as PyTorch's schedulers do.
class Optimizer {
 public:
  explicit Optimizer(OptimizerOptions options) : options_(std::move(options)) {}

  // Collective. Reads shard.gradients() without changing them. ResourceExhausted: no memory for the
  // moments or for streaming; Aborted: another rank has none; in both cases no rank has stepped.
  // After an error of the device itself the ranks' weights differ, and have to be loaded again.
  absl::StatusOr<OptimizerReport> Step(ParameterShard& shard, Communicator& communicator);

  int64_t updates() const { return updates_; }
  int64_t schedule_step() const { return schedule_step_; }
  // Restores the counters of a checkpoint.
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
