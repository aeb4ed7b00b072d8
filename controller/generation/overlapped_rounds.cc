#include "controller/generation/overlapped_rounds.h"

#include <utility>

#include "controller/generation/round_facts.h"

namespace tandem {

OverlappedRounds::OverlappedRounds(const StepContext& context,
                                   const TrainOptions& options,
                                   std::unique_ptr<RoundRunner> runner)
    : BackgroundRounds(context, options, std::move(runner), options.partial.max_staleness) {}

absl::Status OverlappedRounds::Generate(StepBatch& batch, int64_t missing) {
  // The last step has the metrics as well, though nothing is generated in its background.
  CountBackground(0, 0, batch.facts);
  return RoundGeneration::Generate(batch, missing);
}

int64_t OverlappedRounds::MayAdmit(int64_t taken) const {
  return limit().MayAdmit(buffer().Counts().groups, taken);
}

std::set<int64_t> OverlappedRounds::DueGroups(const StepBatch& batch) const {
  return tandem::DueGroups(buffer().state(),
                           limit().Deadlines(batch.version, runner().options().updates_per_step));
}

absl::Status OverlappedRounds::StopBackground(StepBatch& batch) {
  if (background() == nullptr) return absl::OkStatus();
  // Waiting for samples that may not be interrupted counts as generation time.
  batch.phases.Begin("generate");
  const absl::Status status = background()->End();
  CountAndForget(batch);
  return status;
}

}  // namespace tandem
