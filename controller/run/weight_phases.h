// A step's work on weights besides training: verifies the weights in rollouts, compares trainer and
// rollout log-probs on a probe, and syncs new weights.
#pragma once

#include <absl/status/status.h>

#include "controller/run/recovery.h"
#include "controller/step/step_batch.h"
#include "controller/step/step_context.h"
#include "controller/step/train_options.h"

namespace tandem {

class WeightPhases {
 public:
  // All arguments must outlive the object.
  WeightPhases(const StepContext& context,
               const TrainOptions& options,
               const RunPosition& position,
               Recovery& recovery)
      : context_(context), options_(options), position_(position), recovery_(recovery) {}

  // Checks that the resident weights of all rollouts still have their digests. DataLoss: they do
  // not; else as RolloutFleet::CallAll.
  absl::Status Verify(StepBatch& batch);
  // Call after Placement::BeforeTraining. Rollouts may be awake if they keep their memory.
  // DataLoss: log-probs of the probe differ.
  absl::Status CompareProbe(StepBatch& batch);
  // Sends the weights of the position's version to all rollouts and wakes them. Waits for rollouts
  // that are lost meanwhile to rejoin. Also returns OK where the run is stopping: the step is kept,
  // and the next start synchronizes.
  absl::Status SyncAndWake(StepBatch& batch);

 private:
  const StepContext& context_;
  const TrainOptions& options_;
  const RunPosition& position_;
  Recovery& recovery_;
};

}  // namespace tandem
