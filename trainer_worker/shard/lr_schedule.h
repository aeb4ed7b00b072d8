// The learning rate of each optimizer step: transformers' constant_with_warmup, and verl's cosine
// and warmup-stable-decay (verl utils torch_functional get_{constant,cosine,wsd}_schedule_*; wsd:
// Hu et al. 2024, MiniCPM, section 4).
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

namespace tandem {

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

}  // namespace tandem
