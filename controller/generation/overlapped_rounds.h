// Generation in rounds that continue while the trainers train (rollout.partial.overlap).
#pragma once

#include <cstdint>
#include <memory>
#include <set>

#include <absl/status/status.h>

#include "controller/generation/background_generation.h"
#include "controller/generation/round_generation.h"
#include "controller/partial_rollout/buffer/round_spec.h"
#include "controller/partial_rollout/round_runner.h"
#include "controller/step/step_batch.h"
#include "controller/step/step_context.h"
#include "controller/step/train_options.h"

namespace tandem {

// Rounds in the background fill the buffer for later batches, so a batch may hold tokens of older
// weights: StalenessLimit bounds how many groups are admitted, and says which may wait no longer.
class OverlappedRounds final : public RoundGeneration {
 public:
  // `context` and `options` must outlive it.
  OverlappedRounds(const StepContext& context,
                   const TrainOptions& options,
                   std::unique_ptr<RoundRunner> runner);

  absl::Status Generate(StepBatch& batch, int64_t missing) override;

  // Begins nothing in the run's last step.
  void StartBackground(const StepBatch& batch) override;
  bool background_running() const override { return background_ != nullptr; }
  absl::Status StopBackground(StepBatch& batch) override;
  void RollBackStep() override;

 private:
  int64_t MayAdmit(int64_t taken) const override;
  std::set<int64_t> DueGroups(const StepBatch& batch) const override;

  const StalenessLimit limit_;
  std::unique_ptr<BackgroundGeneration> background_;  // while it runs
};

}  // namespace tandem
