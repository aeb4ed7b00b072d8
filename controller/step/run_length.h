// The number of steps of a run whose time is bounded (trainer.max_seconds).
#pragma once

#include <cstdint>
#include <string>

#include <absl/time/time.h>

namespace tandem {

struct LengthLimit {
  absl::Duration time;  // of steps and validations together; zero: no bound
  int64_t fewest = 1;   // steps that run however long they take

  bool enabled() const { return time > absl::ZeroDuration(); }
};

// The times that a process has measured of its own steps.
struct MeasuredStep {
  int64_t step = 1;  // the newest step
  absl::Duration step_time;
  absl::Duration spent;  // on steps and validations of this process, and on one validation to come
};

// The last step that ends within the limit: at least `limit.fewest`, at most `total`.
int64_t StepsWithin(const LengthLimit& limit, int64_t total, const MeasuredStep& measured);

// The number of steps of a run. With a time limit, the first steps of a process determine it. Not
// thread-safe.
class RunLength {
 public:
  RunLength(const LengthLimit& limit, int64_t total_steps)
      : limit_(limit), total_steps_(total_steps) {}

  int64_t total_steps() const { return total_steps_; }
  // The number of steps that a checkpoint keeps for a resume: the total if it is decided, else 0.
  int64_t planned_steps() const { return is_decided_ ? total_steps_ : 0; }
  // Restores the total that an earlier process decided; 0: it decided none.
  void Restore(int64_t planned_steps);

  void CountStep(absl::Duration time, bool finished);
  // `time` that a validation of this process took.
  void CountValidation(absl::Duration time);
  // The expected time of a validation, from one of an earlier process.
  void ExpectValidation(absl::Duration time) { validation_time_ = time; }

  // Call after `finished_steps` steps. Decides the total if there is a limit and enough was
  // measured. `validates`: the run ends with a validation. Returns a message for the user; empty:
  // nothing was decided.
  std::string DecideTotal(int64_t finished_steps, bool validates);

 private:
  const LengthLimit limit_;
  int64_t total_steps_;
  bool is_decided_ = false;
  int64_t own_steps_ = 0;           // of this process
  absl::Duration step_time_;        // of the newest step of this process
  absl::Duration validation_time_;  // of the newest validation
  absl::Duration spent_;            // on steps and validations of this process
};

}  // namespace tandem
