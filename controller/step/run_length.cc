#include "controller/step/run_length.h"

#include <algorithm>

#include <fmt/format.h>

namespace tandem {
namespace {

std::string DurationText(absl::Duration time) {
  const double seconds = absl::ToDoubleSeconds(time);
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  return fmt::format("{:.0f} min", seconds / 60);
}

}  // namespace

int64_t StepsWithin(const LengthLimit& limit, int64_t total, const MeasuredStep& measured) {
  if (!limit.enabled() || measured.step_time <= absl::ZeroDuration()) return total;
  absl::Duration rest;
  const absl::Duration left = limit.time - measured.spent;
  const int64_t fit =
      left > absl::ZeroDuration() ? absl::IDivDuration(left, measured.step_time, &rest) : 0;
  // Checked before the addition, which could overflow: `fit` may be nearly as large as an int64_t.
  if (fit >= total) return total;
  return std::min(std::max(measured.step + fit, limit.fewest), total);
}

void RunLength::Restore(int64_t planned_steps) {
  if (!limit_.enabled() || planned_steps <= 0) return;
  is_decided_ = true;
  total_steps_ = std::min(total_steps_, planned_steps);
}

void RunLength::CountStep(absl::Duration time, bool finished) {
  step_time_ = time;
  spent_ += time;
  if (finished) ++own_steps_;
}

void RunLength::CountValidation(absl::Duration time) {
  validation_time_ = time;
  spent_ += time;
}

std::string RunLength::DecideTotal(int64_t finished_steps, bool validates) {
  if (is_decided_ || !limit_.enabled() || own_steps_ == 0) return "";
  const int64_t all = total_steps_;
  const absl::Duration spent = spent_ + (validates ? validation_time_ : absl::ZeroDuration());
  const int64_t steps =
      StepsWithin(limit_, all, {.step = finished_steps, .step_time = step_time_, .spent = spent});
  // The first step also touches all memory for the first time, so the second predicts the rest
  // better.
  if (own_steps_ == 1 && steps > finished_steps) return "";
  is_decided_ = true;
  total_steps_ = std::min(total_steps_, steps);
  const auto until = [&](int64_t step) { return spent + (step - finished_steps) * step_time_; };
  std::string text = fmt::format("a step takes {} here: {} of {} steps in {}",
                                 DurationText(step_time_), steps, all, DurationText(until(steps)));
  if (steps < all) {
    text +=
        fmt::format("; all of them take {}, with trainer.max_seconds=0", DurationText(until(all)));
  }
  return text;
}

}  // namespace tandem
