#include "controller/generation/background_generation.h"

#include <utility>

#include "common/base/disk_refusal.h"
#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/status.h"

namespace tandem {

BackgroundGeneration::BackgroundGeneration(BackgroundGenerationParts parts,
                                           int64_t step,
                                           int64_t first_round,
                                           int64_t version)
    : parts_(std::move(parts)),
      step_(step),
      first_round_(first_round),
      version_(version),
      thread_("overlap", [this] {
        status_ = Run();
        ended_at_ = parts_.clock.Now();
      }) {}

BackgroundGeneration::~BackgroundGeneration() { Join(); }

void BackgroundGeneration::Join() {
  stop_ = true;
  const OutsideWait wait;
  thread_.Join();
}

absl::Status BackgroundGeneration::End() {
  Join();
  return Result();
}

absl::Status BackgroundGeneration::Finish() {
  {
    const OutsideWait wait;
    thread_.Join();
  }
  return Result();
}

absl::Status BackgroundGeneration::Result() {
  if (std::exchange(unwritten_, false)) status_ = parts_.end_round();
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
                          runner.BeginRound(step_, next_round(), version_, {}));
  if (groups.empty()) return false;
  RolloutDispatcher dispatcher({.max_in_flight_samples = parts_.max_in_flight_samples,
                                .vocab_limit = parts_.vocab_limit,
                                .interrupted = parts_.interrupted,
                                .end_round = [&] { return runner.RoundIsOver(stop_); }});
  const auto take = [&](const Sample& sample) { return runner.Put(sample); };
  TANDEM_ASSIGN_OR_RETURN(const DispatchResult result,
                          dispatcher.Dispatch(std::move(groups), parts_.replicas, take));
  TANDEM_RETURN_IF_ERROR(result.abandoned);
  rounds_.push_back(runner.Counts());
  const absl::Status ended = runner.EndRound();
  unwritten_ = IsDiskRefused(ended);
  if (unwritten_) return false;
  TANDEM_RETURN_IF_ERROR(ended);
  // Groups that are left over mean that all replicas were lost: a further round would get no
  // tokens.
  return result.unfinished.empty();
}

}  // namespace tandem
