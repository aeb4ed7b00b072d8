#include "trainer_worker/lr_schedule.h"

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

}  // namespace

absl::StatusOr<double> LearningRate(const LrScheduleOptions& options, int64_t step) {
  if (options.type == "constant") {
    return options.lr * ConstantFactor(options, static_cast<double>(step));
  }
  if (options.type == "cosine") {
    return options.lr * CosineFactor(options, static_cast<double>(step));
  }
  return InvalidArgument("actor.optim.lr_scheduler_type is \"{}\"; use constant or cosine",
                         options.type);
}

}  // namespace tandem
