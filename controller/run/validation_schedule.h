// When a run validates.
#pragma once

#include <cstdint>
#include <set>

#include <absl/status/status.h>

#include "controller/run/run_control.h"
#include "controller/step/run_length.h"
#include "controller/step/step_context.h"
#include "controller/step/train_options.h"

namespace tandem {

// Validates after every trainer.test_freq steps and after the last, once per step. Not thread-safe.
class ValidationSchedule {
 public:
  // All arguments must outlive the object; `length` counts the time of validations.
  ValidationSchedule(const StepContext& context,
                     const TrainOptions& options,
                     const RunPosition& position,
                     const RunControl& control,
                     RunLength& length)
      : context_(context),
        options_(options),
        position_(position),
        control_(control),
        length_(length) {}

  // Whether the validation after the newest step is still to be run: a run may have died, or lost a
  // worker, between a step's checkpoint and its validation.
  bool Due() const;
  // Validates now and records the result; does nothing without validation prompts. Errors as
  // Evaluate and RunStore; OK where the run is stopped meanwhile.
  absl::Status Validate();
  // Reads from the store which steps were validated, after its records were changed.
  absl::Status Reload();
  // Whether the run has validated after its newest step, or has nothing to validate with.
  bool done() const;

 private:
  const StepContext& context_;
  const TrainOptions& options_;
  const RunPosition& position_;
  const RunControl& control_;
  RunLength& length_;
  std::set<int64_t> evaluated_;  // steps
};

}  // namespace tandem
