#include "trainer_worker/shard/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "common/base/status_macros.h"

namespace tandem {
namespace {

double ConstantFactor(const LrScheduleOptions& options, double step) {
  const double warmup = static_cast<double>(options.warmup_steps);
  return step < warmup ? step / std::max(1.0, warmup) : 1.0;
}

double CosineFactor(const LrScheduleOptions& options, double step) {
  const double warmup = static_cast<double>(options.warmup_steps);
  const double total = static_cast<double>(options.total_steps);
  if (!options.zero_indexed_step) step += 1;
  if (step < warmup) {
    return options.init_lr_ratio + (1 - options.init_lr_ratio) * step / std::max(1.0, warmup);
  }
  const double progress = (step - warmup) / std::max(1.0, total - warmup);
  const double height = (1 - options.min_lr_ratio) / 2;
  const double middle = (1 + options.min_lr_ratio) / 2;
  const double wave = std::cos(std::numbers::pi * options.num_cycles * 2 * progress);
  return std::max(options.min_lr_ratio, wave * height + middle);
}

double WsdFactor(const LrScheduleOptions& options, int64_t step) {
  const int64_t warmup = options.warmup_steps;
  if (step < warmup) {
    return static_cast<double>(step) / static_cast<double>(std::max<int64_t>(1, warmup));
  }
  const int64_t remaining = std::max<int64_t>(0, options.total_steps - warmup);
  const auto stable = static_cast<int64_t>(static_cast<double>(remaining) * options.stable_ratio);
  if (step < warmup + stable) return 1.0;
  if (step >= options.total_steps) return options.min_lr_ratio;
  const auto decay = static_cast<double>(std::max<int64_t>(1, remaining - stable));
  const double progress = static_cast<double>(step - warmup - stable) / decay;
  const double wave = std::cos(std::numbers::pi * options.num_cycles * 2 * progress);
  const double height = std::max(0.0, 0.5 * (1 + wave));
  return (1 - options.min_lr_ratio) * height + options.min_lr_ratio;
}

}  // namespace

int64_t WarmupSteps(int64_t steps, double ratio, int64_t total_steps) {
  if (steps > 0) return steps;
  return static_cast<int64_t>(ratio * static_cast<double>(std::max<int64_t>(0, total_steps)));
}

absl::StatusOr<double> LearningRate(const LrScheduleOptions& options, int64_t step) {
  if (options.type == "constant") {
    return options.lr * ConstantFactor(options, static_cast<double>(step));
  }
  if (options.type == "cosine") {
    return options.lr * CosineFactor(options, static_cast<double>(step));
  }
  if (options.type == "wsd") return options.lr * WsdFactor(options, step);
  return InvalidArgument("actor.optim.lr_scheduler_type is \"{}\"; use constant, cosine or wsd",
                         options.type);
}

}  // namespace tandem
