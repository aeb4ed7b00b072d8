// Generation in rounds that cut unfinished samples and continue them later
// (docs/guides/partial_rollout.md).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "controller/generation/background_generation.h"
#include "controller/generation/generation_mode.h"
#include "controller/partial_rollout/round_runner.h"
#include "controller/step/step_context.h"
#include "controller/step/train_options.h"

namespace tandem {

class RoundGeneration final : public GenerationMode {
 public:
  // `parts` and `options` must outlive it.
  RoundGeneration(const RunParts& parts,
                  const TrainOptions& options,
                  std::unique_ptr<PartialRollout> partial)
      : parts_(parts), options_(options), partial_(std::move(partial)) {}

  absl::Status Prepare(StepBatch& batch) override;
  // Rounds until the pool has a batch, which it gives away.
  absl::Status Generate(StepBatch& batch, int64_t missing) override;

  void StartBackground(const StepBatch& batch) override;
  bool background_running() const override { return overlap_ != nullptr; }
  absl::Status StopBackground(StepBatch& batch) override;

  void CommitStep() override { partial_->pool().Mark(); }
  void RollBackStep() override;
  absl::Status Save(const std::string& checkpoint, int64_t step) const override {
    return partial_->Save(checkpoint, step);
  }
  absl::Status Restore(const std::string& checkpoint, int64_t step) override;
  absl::Status ForgetBefore(int64_t step) override { return partial_->Prune(step); }

  // Groups that are carried from step to step.
  const SamplePool& pool() const { return partial_->pool(); }

 private:
  // One round, with `groups` besides.
  absl::Status RunRound(StepBatch& batch, std::vector<GroupRequest> groups);
  absl::Status ServeRound(StepBatch& batch, std::vector<GroupRequest> groups);
  // With overlap: a group with tokens of this version or an older one must be trained in this step.
  // -1 without.
  int64_t DueVersion(const StepBatch& batch) const;
  absl::Status TakeFromPool(StepBatch& batch, int64_t wanted);

  const RunParts& parts_;
  const TrainOptions& options_;
  const std::unique_ptr<PartialRollout> partial_;
  std::unique_ptr<Overlap> overlap_;  // while it runs
  int64_t rounds_ = 0;                // of the step
  bool prefill_is_known_ = true;      // no rollout was lost while the step's was counted
};

}  // namespace tandem
