// How long a run is whose time is bounded: settled by the first steps, and kept by checkpoints.
#include <fmt/format.h>

#include "common/base/status.h"
#include "controller/run/train_loop.h"

namespace tandem {
namespace {

std::string Seconds(absl::Duration time) {
  const double seconds = absl::ToDoubleSeconds(time);
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  return fmt::format("{:.0f} min", seconds / 60);
}

}  // namespace

absl::Status TrainLoop::RestoreLength(const std::string& checkpoint) {
  if (checkpoint.empty() || !options_.limit.enabled()) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const ControllerState state, CheckpointIndex::ReadState(checkpoint));
  if (state.planned_steps <= 0) return absl::OkStatus();
  length_settled_ = true;
  Shorten(state.planned_steps);
  return absl::OkStatus();
}

absl::Status TrainLoop::TimedStep(int64_t step) {
  const absl::Time begin = parts_.clock.Now();
  absl::Status status = RunStep(step);
  step_time_ = parts_.clock.Now() - begin;
  spent_ += step_time_;
  if (status.ok()) ++own_steps_;
  return status;
}

void TrainLoop::SettleLength() {
  if (length_settled_ || !options_.limit.enabled() || own_steps_ == 0) return;
  const int64_t all = options_.total_steps;
  const absl::Duration last_validation =
      parts_.validation.empty() ? absl::ZeroDuration() : validation_time_;
  const absl::Duration spent = spent_ + last_validation;
  const int64_t made = position_.finished_steps;
  const int64_t steps =
      StepsWithin(options_.limit, all, {.step = made, .step_time = step_time_, .spent = spent});
  // The first step also touches all memory for the first time: the second tells more of the rest.
  if (own_steps_ == 1 && steps > made) return;
  length_settled_ = true;
  const auto until = [&](int64_t step) { return spent + (step - made) * step_time_; };
  std::string text = fmt::format("a step takes {} here: {} of {} steps in {}", Seconds(step_time_),
                                 steps, all, Seconds(until(steps)));
  if (steps < all) {
    text += fmt::format("; all of them take {}, with trainer.max_seconds=0", Seconds(until(all)));
  }
  parts_.progress.OnMessage(text);
  Shorten(steps);
}

void TrainLoop::Shorten(int64_t steps) {
  if (steps >= options_.total_steps) return;
  options_.total_steps = steps;
  control_.Shorten(steps);
  parts_.progress.OnShortened(steps);
}

}  // namespace tandem
