// How many steps a run makes whose time is bounded (trainer.max_seconds).
#pragma once

#include <cstdint>
#include <string>

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

// The number of steps of a run, which a time limit settles by the first steps of a process. Not
// thread-safe.
class RunLength {
 public:
  RunLength(const LengthLimit& limit, int64_t total_steps)
      : limit_(limit), total_steps_(total_steps) {}

  int64_t total_steps() const { return total_steps_; }
  // What a checkpoint keeps for a resume: the total if it was settled, else 0.
  int64_t planned_steps() const { return settled_ ? total_steps_ : 0; }
  // As an earlier process settled it; 0: it did not.
  void Restore(int64_t planned_steps);

  void CountStep(absl::Duration time, bool finished);
  // Of a validation of this process.
  void CountValidation(absl::Duration time);
  // What a validation takes, as one of an earlier process did.
  void ExpectValidation(absl::Duration time) { validation_time_ = time; }

  // After `finished_steps` steps: settles the total if there is a limit and enough was seen.
  // `validates`: the run ends with a validation. Returns what to tell the user; empty: nothing was
  // settled.
  std::string Settle(int64_t finished_steps, bool validates);

 private:
  const LengthLimit limit_;
  int64_t total_steps_;
  bool settled_ = false;
  int64_t own_steps_ = 0;           // of this process
  absl::Duration step_time_;        // of the newest of them
  absl::Duration validation_time_;  // of the newest validation
  absl::Duration spent_;            // on steps and validations of this process
};

}  // namespace tandem
