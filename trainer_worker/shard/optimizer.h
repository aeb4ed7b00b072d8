// AdamW in torch's order of operations (torch.optim.AdamW, single tensor, no amsgrad), and
// clipping.
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

// What a step needs besides the arrays (AdamWArrays), every gradient being multiplied by
// `gradient_scale` first. `step` counts from 1. The update is elementwise: the bits do not depend
// on how a tensor is cut into shards.
AdamWFactors FactorsOf(const AdamWOptions& options, double lr, int64_t step, float gradient_scale);

// torch.nn.utils.clip_grad_norm_: factor of the gradients, at most 1.
float ClipFactor(double norm, double max_norm);

// The learning rate of each optimizer step: transformers' constant_with_warmup, and verl's cosine
// and warmup-stable-decay (verl utils torch_functional get_{constant,cosine,wsd}_schedule_*; wsd:
// Hu et al. 2024, MiniCPM, section 4).
struct LrScheduleOptions {
  std::string type = "constant";  // constant, cosine or wsd
  double lr = 1e-6;
  int64_t warmup_steps = 0;       // linear from init_lr_ratio * lr
  int64_t total_steps = 0;        // that cosine and wsd span, warm-up included
  double min_lr_ratio = 0.0;      // where cosine and wsd end, fraction of lr
  double init_lr_ratio = 0.0;     // where the cosine's warm-up starts, fraction of lr
  double num_cycles = 0.5;        // of the cosine after the warm-up, of wsd in its decay
  double stable_ratio = 0.9;      // of wsd's steps after the warm-up: rounded down to whole steps
  bool zero_indexed_step = true;  // false: the cosine is one step ahead
};

// Rate of optimizer step `step`, counted from 0. After total_steps the cosine goes on (with
// num_cycles = 0.5 it rises again, as in verl), wsd stays at min_lr_ratio. Pure.
// InvalidArgument: unknown type.
absl::StatusOr<double> LearningRate(const LrScheduleOptions& options, int64_t step);

// verl's rule: `steps` where it is above 0, else the whole steps in ratio * total_steps.
int64_t WarmupSteps(int64_t steps, double ratio, int64_t total_steps);

// One optimizer step on this rank's shard: one pass for the global gradient norm, one for clipping,
// AdamW and rounding.
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
