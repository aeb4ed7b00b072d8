// Generation of whole samples: every sample of a step is generated to its end before the trainers
// train.
#pragma once

#include "controller/generation/generation_mode.h"
#include "controller/step/step_context.h"
#include "controller/step/train_options.h"

namespace tandem {

class WholeGeneration final : public GenerationMode {
 public:
  // Both must outlive it.
  WholeGeneration(const StepContext& context, const TrainOptions& options)
      : context_(context), options_(options) {}

  absl::Status Prepare(StepBatch& batch) override;
  // A whole batch of train_batch_size groups each time: dynamic sampling draws by batches, as verl
  // does.
  absl::Status Generate(StepBatch& batch, int64_t missing) override;

  void StartBackground(const StepBatch& /*batch*/) override {}
  bool background_running() const override { return false; }
  absl::Status StopBackground(StepBatch& /*batch*/) override { return absl::OkStatus(); }
  void CommitStep() override {}
  void RollBackStep() override {}
  absl::Status Save(const std::string& /*checkpoint*/, int64_t /*step*/) const override {
    return absl::OkStatus();
  }
  absl::Status Restore(const std::string& /*checkpoint*/, int64_t /*step*/) override {
    return absl::OkStatus();
  }
  absl::Status ForgetBefore(int64_t /*step*/) override { return absl::OkStatus(); }

 private:
  absl::Status AddPrompts(StepBatch& batch);
  std::vector<GroupRequest> MakeRequests(StepBatch& batch, size_t first) const;

  const StepContext& context_;
  const TrainOptions& options_;
  size_t generated_ = 0;  // of the batch's prompts
};

}  // namespace tandem
