// How many steps a run makes whose time is bounded (trainer.max_seconds).
#pragma once

#include <cstdint>

#include <absl/time/time.h>

namespace tandem {

struct LengthLimit {
  absl::Duration time;  // of steps and validations together; zero: no bound
  int64_t fewest = 1;   // steps, however long they take

  bool enabled() const { return time > absl::ZeroDuration(); }
};

// What a process has seen of its own steps.
struct MeasuredStep {
  int64_t step = 1;  // the newest
  absl::Duration step_time;
  absl::Duration spent;  // on all steps of this process, and on validations, one to come included
};

// The last step that ends in time, `limit.fewest` at least and `total` at most.
int64_t StepsWithin(const LengthLimit& limit, int64_t total, const MeasuredStep& measured);

}  // namespace tandem
