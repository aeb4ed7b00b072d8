// The learning rate of each optimizer step: transformers' constant_with_warmup and verl's cosine.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

namespace tandem {

struct LrScheduleOptions {
  std::string type = "constant";  // constant or cosine
  double lr = 1e-6;
  int64_t warmup_steps = 0;       // linear from init_lr_ratio * lr
  int64_t total_steps = 0;        // that cosine spans, warm-up included
  double min_lr_ratio = 0.0;      // where cosine ends, fraction of lr
  double init_lr_ratio = 0.0;     // where the cosine's warm-up starts, fraction of lr
  double num_cycles = 0.5;        // of the cosine after the warm-up
  bool zero_indexed_step = true;  // false: the cosine is one step ahead
};

// Rate of optimizer step `step`, counted from 0. Pure. InvalidArgument: unknown type.
absl::StatusOr<double> LearningRate(const LrScheduleOptions& options, int64_t step);

}  // namespace tandem
