// Generation in rounds that continue while the trainers train (rollout.partial.overlap).
#pragma once

#include <cstdint>
#include <memory>
#include <set>

#include <absl/status/status.h>

#include "controller/generation/background_rounds.h"
#include "controller/partial_rollout/round_runner.h"
#include "controller/step/step_batch.h"
#include "controller/step/step_context.h"
#include "controller/step/train_options.h"

namespace tandem {

// Rounds in the background fill the buffer for later batches, so a batch may hold tokens of older
// weights: StalenessLimit bounds how many groups are admitted, and says which may wait no longer.
class OverlappedRounds final : public BackgroundRounds {
 public:
  // `context` and `options` must outlive it.
  OverlappedRounds(const StepContext& context,
                   const TrainOptions& options,
                   std::unique_ptr<RoundRunner> runner);

  absl::Status Generate(StepBatch& batch, int64_t missing) override;
  absl::Status StopBackground(StepBatch& batch) override;

 private:
  int64_t MayAdmit(int64_t taken) const override;
  std::set<int64_t> DueGroups(const StepBatch& batch) const override;
};

}  // namespace tandem
