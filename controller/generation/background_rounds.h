// Generation that goes on, in rounds, while the trainers train.
#pragma once

#include <cstdint>
#include <memory>

#include "controller/generation/background_generation.h"
#include "controller/generation/round_generation.h"
#include "controller/partial_rollout/buffer/round_spec.h"
#include "controller/partial_rollout/round_runner.h"
#include "controller/step/step_batch.h"
#include "controller/step/step_context.h"
#include "controller/step/train_options.h"

namespace tandem {

// What OverlappedRounds and OneStepOff share: how far the background may run ahead, and when it
// begins and is dropped. They decide when it ends.
class BackgroundRounds : public RoundGeneration {
 public:
  // Begins nothing in the run's last step.
  void StartBackground(const StepBatch& batch) override {
    if (!batch.is_last) background_ = StartRounds(batch, limit_);
  }
  bool background_running() const override { return background_ != nullptr; }
  void RollBackStep() override {
    background_.reset();
    RoundGeneration::RollBackStep();
  }

 protected:
  // `context` and `options` must outlive it.
  BackgroundRounds(const StepContext& context,
                   const TrainOptions& options,
                   std::unique_ptr<RoundRunner> runner,
                   int64_t max_staleness);

  const StalenessLimit& limit() const { return limit_; }
  BackgroundGeneration* background() { return background_.get(); }  // null: none runs
  // Adds what the background has made, which has ended, to the step's metrics, and forgets it.
  void CountAndForget(StepBatch& batch);

 private:
  const StalenessLimit limit_;
  std::unique_ptr<BackgroundGeneration> background_;  // while it runs
};

}  // namespace tandem
