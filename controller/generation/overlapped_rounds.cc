#include "controller/generation/overlapped_rounds.h"

#include <utility>

#include "controller/generation/round_facts.h"

namespace tandem {

OverlappedRounds::OverlappedRounds(const StepContext& context,
                                   const TrainOptions& options,
                                   std::unique_ptr<RoundRunner> runner)
    : RoundGeneration(context, options, std::move(runner)),
      limit_(options.partial.train_batch_size, options.partial.max_staleness) {}

absl::Status OverlappedRounds::Generate(StepBatch& batch, int64_t missing) {
  // The last step has the metrics as well, though nothing is generated in its background.
  CountBackground(0, 0, batch.facts);
  return RoundGeneration::Generate(batch, missing);
}

int64_t OverlappedRounds::MayAdmit(int64_t taken) const {
  return limit_.MayAdmit(buffer().Counts().groups, taken);
}

std::set<int64_t> OverlappedRounds::DueGroups(const StepBatch& batch) const {
  return buffer().DueGroups(limit_.Deadlines(batch.version, runner().options().updates_per_step));
}

void OverlappedRounds::StartBackground(const StepBatch& batch) {
  if (!batch.is_last) background_ = StartRounds(batch, limit_);
}

absl::Status OverlappedRounds::StopBackground(StepBatch& batch) {
  if (background_ == nullptr) return absl::OkStatus();
  // Waiting for samples that may not be interrupted counts as generation time.
  batch.phases.Begin("generate");
  const absl::Status status = background_->End();
  CountBackgroundRounds(*background_, batch);
  background_.reset();
  return status;
}

void OverlappedRounds::RollBackStep() {
  background_.reset();
  RoundGeneration::RollBackStep();
}

}  // namespace tandem
