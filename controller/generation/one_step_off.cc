#include "controller/generation/one_step_off.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/status.h"
#include "controller/generation/round_facts.h"
#include "controller/step/training_phase.h"

namespace tandem {

OneStepOff::OneStepOff(const StepContext& context,
                       const TrainOptions& options,
                       std::unique_ptr<RoundRunner> runner)
    : BackgroundRounds(context, options, std::move(runner), /*max_staleness=*/1) {}

absl::Status OneStepOff::Generate(StepBatch& batch, int64_t missing) {
  if (batch.prompts.empty()) {
    // The last step has the metrics as well, though nothing is generated beside it.
    CountBackground(0, 0, batch.facts);
    TANDEM_RETURN_IF_ERROR(CheckSampledAhead(buffer().state(), batch.step, batch.version));
  }
  return RoundGeneration::Generate(batch, missing);
}

absl::Status OneStepOff::FinishBackground(StepBatch& batch) {
  const Instant waiting = context().clock.Now();
  const absl::Status status = background()->Finish();
  batch.facts.trainer["timing_s/wait_train"] =
      std::max(0.0, absl::ToDoubleSeconds(waiting - background()->ended_at()));
  CountAndForget(batch);
  return status;
}

absl::StatusOr<SampleStore*> OneStepOff::BeforeUpdate(StepBatch& batch) {
  if (background() == nullptr) return nullptr;
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
  runner().buffer().SetAhead({.step = batch.step + 1, .version = batch.version});
  TANDEM_RETURN_IF_ERROR(ShowUpcoming(batch));
  return context().upcoming;
}

absl::Status OneStepOff::ShowUpcoming(const StepBatch& batch) const {
  SampleStore& upcoming = *context().upcoming;
  TANDEM_RETURN_IF_ERROR(upcoming.BeginStep(batch.step + 1));
  const BufferState& waiting = buffer().state();
  int64_t position = 0;
  for (const auto& [number, group] : waiting.groups) {
    TANDEM_RETURN_IF_ERROR(ReadGroup(*waiting.file, group, position++, [&](const Sample& sample) {
      return upcoming.Put(sample, batch.version, TokenVersions::kExactly);
    }));
  }
  return absl::OkStatus();
}

absl::Status OneStepOff::StopBackground(StepBatch& batch) {
  return background() == nullptr ? absl::OkStatus() : FinishBackground(batch);
}

absl::Status CheckSampledAhead(const BufferState& waiting, int64_t step, int64_t version) {
  if (waiting.groups.empty()) return absl::OkStatus();
  std::optional<int64_t> sampled_by;
  if (waiting.ahead) {
    sampled_by = waiting.ahead->version;
    if (waiting.ahead->step != step) {
      return MakeStatus(absl::StatusCode::kDataLoss,
                        "step {} begins with a batch that was sampled for step {}; this is a "
                        "defect of Tandem",
                        step, waiting.ahead->step);
    }
  }
  for (const auto& [number, group] : waiting.groups) {
    for (const BufferedSample& sample : group.samples) {
      for (const VersionRun& run : sample.versions) {
        if (!sampled_by) sampled_by = std::min(version, run.version);
        if (run.version == *sampled_by) continue;
        return MakeStatus(absl::StatusCode::kDataLoss,
                          "sample {:#x} was generated ahead for step {}, of weight version {}, and "
                          "has tokens of weight version {} where all of its batch are of version "
                          "{}; this is a defect of Tandem",
                          sample.sample_id, step, version, run.version, *sampled_by);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem
