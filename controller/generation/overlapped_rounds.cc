#include "controller/generation/overlapped_rounds.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/status.h"
#include "common/process/threads.h"
#include "controller/generation/round_facts.h"
#include "controller/partial_rollout/buffer/round_spec.h"
#include "controller/partial_rollout/round_runner.h"
#include "controller/rollouts/rollout_dispatcher.h"

namespace tandem {
namespace {

struct BackgroundGenerationParts {
  RoundRunner& runner;
  StalenessLimit limit;
  RoundRunner::Draw draw;
  // Replicas that serve the weight version. A replica that is lost stays away until the next weight
  // sync brings it back; its samples keep the tokens they had before the round.
  std::vector<Replica> replicas;
  int64_t max_in_flight_samples = 128;                        // per replica
  int64_t vocab_limit = std::numeric_limits<int32_t>::max();  // RolloutDispatcher::Options
  std::function<bool()> interrupted;
};

}  // namespace

// Runs rounds on a thread of its own from construction until End. The next round begins as soon as
// one is complete, while StalenessLimit admits groups and nothing asks the round to end. The thread
// alone uses the round runner and the prompts until End returns.
class BackgroundGeneration {
 public:
  // Rounds of `step`, numbered from `first_round`.
  BackgroundGeneration(BackgroundGenerationParts parts,
                       int64_t step,
                       int64_t first_round,
                       int64_t version);
  // Same as End, but drops the status.
  ~BackgroundGeneration();

  // Interrupts the round in progress and waits for it. Returns the first error of a round, or OK
  // where the rounds were only interrupted. A round that the journal replays runs as far as it did
  // the first time.
  absl::Status End();

  // Counts of the completed rounds. Valid after End.
  const std::vector<RoundCounts>& rounds() const { return rounds_; }

 private:
  absl::Status Run();
  int64_t next_round() const { return first_round_ + static_cast<int64_t>(rounds_.size()); }
  // False: another round would find nothing to generate, or no replica that generates.
  absl::StatusOr<bool> RunRound();

  const BackgroundGenerationParts parts_;
  const int64_t step_;
  const int64_t first_round_;
  const int64_t version_;
  std::atomic<bool> stop_ = false;
  std::vector<RoundCounts> rounds_;
  absl::Status status_;
  NamedThread thread_;
};

BackgroundGeneration::BackgroundGeneration(BackgroundGenerationParts parts,
                                           int64_t step,
                                           int64_t first_round,
                                           int64_t version)
    : parts_(std::move(parts)),
      step_(step),
      first_round_(first_round),
      version_(version),
      thread_("overlap", [this] { status_ = Run(); }) {}

BackgroundGeneration::~BackgroundGeneration() {
  stop_ = true;
  const OutsideWait wait;
  thread_.Join();
}

absl::Status BackgroundGeneration::End() {
  stop_ = true;
  const OutsideWait wait;
  thread_.Join();
  return absl::IsCancelled(status_) ? absl::OkStatus() : status_;
}

absl::Status BackgroundGeneration::Run() {
  const WorkStep step("generation in the background");
  while (true) {
    const int64_t round = next_round();
    const bool again = parts_.runner.Journaled(step_, round, version_);
    const bool over =
        stop_ || parts_.runner.BatchIsComplete() || parts_.runner.JournaledAfter(step_, round);
    if (!again && over) return absl::OkStatus();
    TANDEM_ASSIGN_OR_RETURN(const bool made, RunRound());
    if (!made) return absl::OkStatus();
  }
}

absl::StatusOr<bool> BackgroundGeneration::RunRound() {
  RoundRunner& runner = parts_.runner;
  const int64_t admitted =
      parts_.limit.MayAdmit(runner.buffer().Counts().groups, runner.options().train_batch_size);
  TANDEM_RETURN_IF_ERROR(runner.TopUpPrompts(admitted, parts_.draw));
  TANDEM_ASSIGN_OR_RETURN(std::vector<GroupRequest> groups,
                          runner.BeginRound(step_, next_round(), version_));
  if (groups.empty()) return false;
  RolloutDispatcher dispatcher({.max_in_flight_samples = parts_.max_in_flight_samples,
                                .vocab_limit = parts_.vocab_limit,
                                .interrupted = parts_.interrupted,
                                .end_round = [&] { return runner.RoundIsOver(stop_); }});
  const auto take = [&](const Sample& sample) { return runner.Put(sample); };
  TANDEM_ASSIGN_OR_RETURN(const DispatchResult result,
                          dispatcher.Dispatch(std::move(groups), parts_.replicas, take));
  TANDEM_RETURN_IF_ERROR(result.abandoned);
  TANDEM_RETURN_IF_ERROR(runner.EndRound());
  rounds_.push_back(runner.Counts());
  // Groups that are left over mean that all replicas were lost: a further round would get no
  // tokens.
  return result.unfinished.empty();
}

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

OverlappedRounds::~OverlappedRounds() = default;

int64_t OverlappedRounds::MayAdmit() const { return limit_.MayAdmit(buffer().Counts().groups, 0); }

int64_t OverlappedRounds::DueVersion(const StepBatch& batch) const {
  return limit_.DueVersion(batch.version, runner().options().updates_per_step);
}

void OverlappedRounds::StartBackground(const StepBatch& batch) {
  if (batch.is_last) return;
  const StepContext& run = context();
  background_ = std::make_unique<BackgroundGeneration>(
      BackgroundGenerationParts{.runner = runner(),
                                .limit = limit_,
                                .draw = draw(),
                                .replicas = run.fleet.Present(batch.version),
                                .max_in_flight_samples = run.fleet.max_in_flight_samples(),
                                .vocab_limit = run.fleet.vocab_limit(),
                                .interrupted = run.interrupted},
      batch.step, rounds(), batch.version);
}

absl::Status OverlappedRounds::StopBackground(StepBatch& batch) {
  if (background_ == nullptr) return absl::OkStatus();
  // Waiting for samples that may not be interrupted counts as generation time.
  batch.phases.Begin("generate");
  const absl::Status status = background_->End();
  int64_t tokens = 0;
  for (RoundCounts round : background_->rounds()) {
    // Kept out of the step's generated tokens, whose rate is per second of the generation phase.
    tokens += std::exchange(round.generated_tokens, 0);
    CountRound(/*is_own_round=*/false, round, batch.facts);
  }
  CountBackground(std::ssize(background_->rounds()), tokens, batch.facts);
  background_.reset();
  ReportNotices();
  return status;
}

void OverlappedRounds::RollBackStep() {
  background_.reset();
  RoundGeneration::RollBackStep();
}

}  // namespace tandem
