#include "controller/generation/one_step_off.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/status.h"
#include "controller/generation/round_facts.h"
#include "controller/step/training_phase.h"

namespace tandem {

OneStepOff::OneStepOff(const StepContext& context,
                       const TrainOptions& options,
                       std::unique_ptr<RoundRunner> runner)
    : RoundGeneration(context, options, std::move(runner)),
      limit_(options.partial.train_batch_size, /*max_staleness=*/1) {}

absl::Status OneStepOff::Generate(StepBatch& batch, int64_t missing) {
  if (batch.prompts.empty()) {
    // The last step has the metrics as well, though nothing is generated beside it.
    CountBackground(0, 0, batch.facts);
    TANDEM_RETURN_IF_ERROR(CheckVersions(batch.version));
  }
  return RoundGeneration::Generate(batch, missing);
}

absl::Status OneStepOff::CheckVersions(int64_t version) const {
  const int64_t oldest = version - runner().options().updates_per_step;
  std::optional<int64_t> expected = sampled_by_;
  for (const auto& [number, group] : buffer().state().groups) {
    for (const BufferedSample& sample : group.samples) {
      for (const VersionRun& run : sample.versions) {
        if (!expected) expected = run.version;
        if (run.version == *expected && run.version >= oldest && run.version <= version) continue;
        return MakeStatus(absl::StatusCode::kDataLoss,
                          "sample {:#x} was generated ahead and has tokens of weight version {}, "
                          "where all of its batch are of version {} and a step of version {} "
                          "trains none before {}; this is a defect of Tandem",
                          sample.sample_id, run.version, *expected, version, oldest);
      }
    }
  }
  return absl::OkStatus();
}

void OneStepOff::StartBackground(const StepBatch& batch) {
  if (!batch.is_last) background_ = StartRounds(batch, limit_);
}

absl::Status OneStepOff::FinishBackground(StepBatch& batch) {
  const Instant waiting = context().clock.Now();
  const absl::Status status = background_->Finish();
  batch.facts.trainer["timing_s/wait_train"] =
      std::max(0.0, absl::ToDoubleSeconds(waiting - background_->ended_at()));
  CountBackgroundRounds(*background_, batch);
  background_.reset();
  return status;
}

absl::StatusOr<SampleStore*> OneStepOff::BeforeUpdate(StepBatch& batch) {
  if (background_ == nullptr) return nullptr;
  batch.phases.Begin("wait_generate");
  TANDEM_RETURN_IF_ERROR(FinishBackground(batch));
  TANDEM_RETURN_IF_ERROR(CheckInterrupted(context()));
  const int64_t groups = runner().options().train_batch_size;
  for (int64_t round = 0; runner().buffer().complete() < groups; ++round) {
    if (round == runner().options().max_rounds_without_batch) {
      return runner().NoBatch(batch.step, round, groups);
    }
    TANDEM_RETURN_IF_ERROR(RunRound(batch, groups, {}));
  }
  sampled_by_ = batch.version;
  TANDEM_RETURN_IF_ERROR(ShowUpcoming(batch));
  return &context().upcoming;
}

absl::Status OneStepOff::ShowUpcoming(const StepBatch& batch) const {
  SampleStore& upcoming = context().upcoming;
  TANDEM_RETURN_IF_ERROR(upcoming.BeginStep(batch.step + 1));
  const BufferState& waiting = buffer().state();
  int64_t position = 0;
  for (const auto& [number, group] : waiting.groups) {
    for (size_t i = 0; i < group.samples.size(); ++i) {
      TANDEM_ASSIGN_OR_RETURN(Sample sample, ReadSample(*waiting.file, group, i));
      sample.group = position;
      TANDEM_RETURN_IF_ERROR(upcoming.Put(sample, batch.version, TokenVersions::kExactly));
    }
    ++position;
  }
  return absl::OkStatus();
}

absl::Status OneStepOff::StopBackground(StepBatch& batch) {
  return background_ == nullptr ? absl::OkStatus() : FinishBackground(batch);
}

void OneStepOff::RollBackStep() {
  background_.reset();
  RoundGeneration::RollBackStep();
}

absl::Status OneStepOff::Restore(const std::string& checkpoint, int64_t step) {
  sampled_by_.reset();
  return RoundGeneration::Restore(checkpoint, step);
}

}  // namespace tandem
