// What a step does with weights besides training: verifies those that rollouts hold, compares
// trainer and rollout by a probe, and publishes new ones.
#pragma once

#include <absl/status/status.h>

#include "controller/run/recovery.h"
#include "controller/step/step_batch.h"
#include "controller/step/step_context.h"
#include "controller/step/train_options.h"

namespace tandem {

class WeightPhases {
 public:
  // All must outlive it.
  WeightPhases(const StepContext& context,
               const TrainOptions& options,
               const RunPosition& position,
               Recovery& recovery)
      : context_(context), options_(options), position_(position), recovery_(recovery) {}

  // The resident weights of all rollouts have their digests still. DataLoss: not; else as
  // RolloutFleet::CallAll.
  absl::Status Verify(StepBatch& batch);
  // While the rollouts sleep: KV pools and training memory never coexist. DataLoss: log-probs of
  // the probe differ.
  absl::Status CompareProbe(StepBatch& batch);
  // Sends the weights of the position's version to all rollouts and wakes them. A rollout that is
  // lost meanwhile is waited for. OK also where the run is to stop now: the step is kept, and the
  // next start syncs.
  absl::Status Publish(StepBatch& batch);

 private:
  const StepContext& context_;
  const TrainOptions& options_;
  const RunPosition& position_;
  Recovery& recovery_;
};

}  // namespace tandem
