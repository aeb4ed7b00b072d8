// Generation in rounds that interrupt unfinished samples and continue them in a later round or step
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
  // `context` and `options` must outlive it.
  RoundGeneration(const StepContext& context,
                  const TrainOptions& options,
                  std::unique_ptr<RoundRunner> runner)
      : context_(context), options_(options), runner_(std::move(runner)) {}

  absl::Status Prepare(StepBatch& batch) override;
  // Runs rounds until the buffer holds a batch of complete groups, and moves those into `batch`.
  absl::Status Generate(StepBatch& batch, int64_t missing) override;

  void StartBackground(const StepBatch& batch) override;
  bool background_running() const override { return background_ != nullptr; }
  absl::Status StopBackground(StepBatch& batch) override;

  void CommitStep() override { runner_->buffer().Commit(); }
  void RollBackStep() override;
  absl::Status Save(const std::string& checkpoint, int64_t step) const override {
    return runner_->buffer().Save(checkpoint, step);
  }
  absl::Status Restore(const std::string& checkpoint, int64_t step) override;
  absl::Status ForgetBefore(int64_t step) override { return runner_->Prune(step); }

  // Groups that are carried from step to step.
  const RolloutBuffer& buffer() const { return runner_->buffer(); }

 private:
  // One round of the buffer's unfinished groups and, in the same dispatch, of `others`.
  absl::Status RunRound(StepBatch& batch, std::vector<GroupRequest> others);
  void ReportNotices();
  absl::Status Dispatch(StepBatch& batch, std::vector<GroupRequest> groups);
  // With overlap, a group with tokens of this weight version or an older one must be trained in
  // this step. -1 without overlap.
  int64_t DueVersion(const StepBatch& batch) const;
  absl::Status TakeBatch(StepBatch& batch, int64_t wanted);

  const StepContext& context_;
  const TrainOptions& options_;
  const std::unique_ptr<RoundRunner> runner_;
  std::unique_ptr<BackgroundGeneration> background_;  // while it runs
  int64_t rounds_ = 0;                                // of the step
  bool prefill_is_known_ =
      true;  // false once a rollout was lost while prefilled tokens were counted
};

}  // namespace tandem
