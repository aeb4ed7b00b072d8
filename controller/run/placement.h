// Which devices run trainers and rollouts, and therefore which of them must sleep while the others
// work. Chosen at assembly.
#pragma once

#include <vector>

#include <absl/status/status.h>

#include "controller/step/step_batch.h"
#include "controller/step/step_context.h"
#include "controller/step/train_options.h"

namespace tandem {

// Used by the train loop's thread only.
class Placement {
 public:
  virtual ~Placement() = default;

  // Makes room for the trainers. `rollouts_busy`: they generate in the background and stay awake.
  virtual absl::Status BeforeTraining(StepBatch& batch, bool rollouts_busy) = 0;
  // Makes room for a weight sync, after generation in the background has ended.
  virtual void BeforeSync(StepBatch& batch) = 0;
};

// Trainer and rollout of a pair share one device: rollouts sleep, with level options.sleep, while
// trainers train.
class ColocatedPlacement final : public Placement {
 public:
  // Both arguments must outlive the placement.
  ColocatedPlacement(const StepContext& context, const TrainOptions& options)
      : context_(context), options_(options) {}

  // Waits until a lost rollout has rejoined and generated its part of the probe again. Errors as
  // RolloutFleet::CallAll.
  absl::Status BeforeTraining(StepBatch& batch, bool rollouts_busy) override;
  // Puts rollouts that are still awake to sleep. A rollout that does not answer is left to the
  // sync, which waits for its successor: if it rejoined here, it would already be asleep with the
  // version that the sync is about to send.
  void BeforeSync(StepBatch& batch) override;

 private:
  const StepContext& context_;
  const TrainOptions& options_;
  bool admission_closed_ = false;
};

}  // namespace tandem
