// Generation in rounds that interrupt unfinished samples and continue them in a later round or step
// (docs/guides/partial_rollout.md).
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "controller/generation/background_generation.h"
#include "controller/generation/generation_mode.h"
#include "controller/partial_rollout/buffer/round_spec.h"
#include "controller/partial_rollout/round_runner.h"
#include "controller/step/step_context.h"
#include "controller/step/train_options.h"

namespace tandem {

// Nothing is generated while the trainers train; OverlappedRounds and OneStepOff do that.
class RoundGeneration : public GenerationMode {
 public:
  // `context` and `options` must outlive it.
  RoundGeneration(const StepContext& context,
                  const TrainOptions& options,
                  std::unique_ptr<RoundRunner> runner)
      : context_(context), options_(options), runner_(std::move(runner)) {}

  absl::Status Prepare(StepBatch& batch) override;
  // Runs rounds until the buffer holds a batch of complete groups, and moves those into `batch`.
  absl::Status Generate(StepBatch& batch, int64_t missing) override;

  void StartBackground(const StepBatch& /*batch*/) override {}
  bool background_running() const override { return false; }
  absl::Status StopBackground(StepBatch& /*batch*/) override { return absl::OkStatus(); }

  void CommitStep() override { runner_->buffer().Commit(); }
  void RollBackStep() override { runner_->buffer().Rollback(); }
  absl::Status Save(const std::string& checkpoint, int64_t step) const override {
    return runner_->buffer().Save(checkpoint, step);
  }
  absl::Status Restore(const std::string& checkpoint, int64_t step) override;
  absl::Status ForgetBefore(int64_t step) override { return runner_->Prune(step); }

  // Groups that are carried from step to step.
  const RolloutBuffer& buffer() const { return runner_->buffer(); }

 protected:
  const StepContext& context() const { return context_; }
  RoundRunner& runner() { return *runner_; }
  const RoundRunner& runner() const { return *runner_; }
  // Draws fresh prompts; errors as DrawPrompts.
  RoundRunner::Draw draw() const;
  int64_t rounds() const { return rounds_; }
  void ReportNotices();
  // RoundRunner::EndRound, which waits for its disk where that refuses the journal. For the train
  // loop's thread.
  absl::Status EndRound();
  // One round of the buffer's unfinished groups and, in the same dispatch, of `others`, for a step
  // that lacks `wanted` groups.
  absl::Status RunRound(StepBatch& batch, int64_t wanted, std::vector<GroupRequest> others);
  // Rounds on a thread of their own, by the step's weights, as far as `limit` admits groups.
  std::unique_ptr<BackgroundGeneration> StartRounds(const StepBatch& batch,
                                                    const StalenessLimit& limit);
  // Adds to the step's metrics what has ended, and reports its notices.
  void CountBackgroundRounds(const BackgroundGeneration& ended, StepBatch& batch);

 private:
  // The number of fresh groups that may be admitted to the buffer now, where the step has taken
  // `taken` groups out of it.
  virtual int64_t MayAdmit(int64_t /*taken*/) const { return std::numeric_limits<int64_t>::max(); }
  // The groups that the step waits for: RoundSpec::due_groups of its own rounds.
  virtual std::set<int64_t> DueGroups(const StepBatch& /*batch*/) const { return {}; }

  absl::Status Dispatch(StepBatch& batch, std::vector<GroupRequest> groups);
  absl::Status TakeBatch(StepBatch& batch, int64_t wanted);

  const StepContext& context_;
  const TrainOptions& options_;
  const std::unique_ptr<RoundRunner> runner_;
  int64_t rounds_ = 0;  // of the step
  bool prefill_is_known_ =
      true;  // false once a rollout was lost while prefilled tokens were counted
};

}  // namespace tandem
