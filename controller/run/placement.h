// Which devices run trainers and rollouts, and so who must sleep when the others work. Chosen at
// assembly.
#pragma once

#include <vector>

#include <absl/status/status.h>

#include "controller/step/step_batch.h"
#include "controller/step/step_context.h"
#include "controller/step/train_options.h"

namespace tandem {

// Used by one thread, the train loop's.
class Placement {
 public:
  virtual ~Placement() = default;

  // Makes room for the trainers. `rollouts_busy`: they generate in the background and stay awake.
  virtual absl::Status BeforeTraining(StepBatch& batch, bool rollouts_busy) = 0;
  // Makes room for a weight sync, after generation in the background has ended.
  virtual void BeforeSync(StepBatch& batch) = 0;
};

// Trainer and rollout of a pair share one device: rollouts sleep, as options.sleep says, while
// trainers train.
class ColocatedPlacement final : public Placement {
 public:
  // Both must outlive it.
  ColocatedPlacement(const StepContext& context, const TrainOptions& options)
      : context_(context), options_(options) {}

  // A rollout that is lost is waited for, and generates its part of the probe again. Errors as
  // RolloutFleet::CallAll.
  absl::Status BeforeTraining(StepBatch& batch, bool rollouts_busy) override;
  // Rollouts that are still awake go to sleep. One that does not answer is left to the sync, which
  // waits for its successor: brought back here it would be asleep already, with the version that
  // the sync would bring.
  void BeforeSync(StepBatch& batch) override;

 private:
  const StepContext& context_;
  const TrainOptions& options_;
  bool asleep_ = false;
};

}  // namespace tandem
