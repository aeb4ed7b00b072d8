#include "controller/generation/background_generation.h"

#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/types/response_tokens.h"

namespace tandem {

Overlap::Overlap(OverlapParts parts, int64_t step, int64_t first_round, int64_t version)
    : parts_(std::move(parts)),
      step_(step),
      first_round_(first_round),
      version_(version),
      thread_("overlap", [this] { status_ = Run(); }) {}

Overlap::~Overlap() {
  stop_ = true;
  thread_.Join();
}

absl::Status Overlap::End() {
  stop_ = true;
  thread_.Join();
  return absl::IsCancelled(status_) ? absl::OkStatus() : status_;
}

absl::Status Overlap::Run() {
  while (true) {
    const int64_t round = next_round();
    const bool again = parts_.partial.Journaled(step_, round, version_);
    const bool over =
        stop_ || parts_.partial.BatchIsThere() || parts_.partial.JournaledAfter(step_, round);
    if (!again && over) return absl::OkStatus();
    TANDEM_ASSIGN_OR_RETURN(const bool made, RunRound());
    if (!made) return absl::OkStatus();
  }
}

absl::StatusOr<bool> Overlap::RunRound() {
  PartialRollout& partial = parts_.partial;
  TANDEM_RETURN_IF_ERROR(partial.AddFresh(partial.options().train_batch_size, parts_.draw));
  TANDEM_ASSIGN_OR_RETURN(std::vector<GroupRequest> groups,
                          partial.BeginRound(step_, next_round(), version_));
  if (groups.empty()) return false;
  RolloutDispatcher dispatcher({.max_in_flight_samples = parts_.max_in_flight_samples,
                                .interrupted = parts_.interrupted,
                                .cut = [&] { return partial.RoundIsOver(stop_); }});
  const auto take = [&](const Sample& sample) -> absl::Status {
    TANDEM_RETURN_IF_ERROR(CheckFiniteLogProbs(sample, "rollout"));
    return partial.pool().Put(sample);
  };
  TANDEM_ASSIGN_OR_RETURN(const DispatchResult result,
                          dispatcher.Dispatch(std::move(groups), parts_.replicas, take));
  TANDEM_RETURN_IF_ERROR(result.given_up);
  TANDEM_RETURN_IF_ERROR(partial.EndRound());
  rounds_.push_back(partial.pool().round());
  // Of what is left where all replicas are lost nobody would generate anything.
  return result.rest.empty();
}

}  // namespace tandem
