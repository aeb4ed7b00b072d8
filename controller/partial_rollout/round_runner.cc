#include "controller/partial_rollout/round_runner.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/base/status.h"
#include "controller/partial_rollout/buffer/round_spec.h"

namespace tandem {
namespace {

// The configuration keys that end a round early. Where several are set, the counts do not tell
// which one ended it.
std::string KeysThatEndRounds(const PartialOptions& options) {
  std::string keys;
  const auto add = [&keys](bool on, const char* key) {
    if (on) keys += fmt::format("{}rollout.partial.{}", keys.empty() ? "" : " and ", key);
  };
  add(options.cap > 0, "max_tokens_per_round");
  add(options.round_seconds > 0, "round_seconds");
  if (keys.empty()) add(true, "until_groups");
  return keys;
}

}  // namespace

absl::Status RoundRunner::TopUpPrompts(int64_t admitted, const Draw& draw) {
  const BufferCounts counts = buffer_->Counts();
  const int64_t fresh =
      std::min(admitted, options_.FreshPrompts(counts.unfinished_groups(), counts.complete));
  if (fresh <= 0) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Prompt> prompts, draw(fresh));
  return buffer_->Add(prompts);
}

bool RoundRunner::Journaled(int64_t step, int64_t round, int64_t version) const {
  return options_.journaled() && journal_->Find(step, round, version).has_value();
}

bool RoundRunner::JournaledAfter(int64_t step, int64_t round) const {
  return options_.journaled() && journal_->KnowsAfter(step, round);
}

absl::StatusOr<std::vector<GroupRequest>> RoundRunner::BeginRound(int64_t step,
                                                                  int64_t round,
                                                                  int64_t version,
                                                                  std::set<int64_t> due_groups) {
  RoundSpec spec{.step = step,
                 .round = round,
                 .version = version,
                 .groups = options_.groups_per_round,
                 .cap = options_.cap,
                 .max_versions = options_.max_versions,
                 .due_groups = std::move(due_groups)};
  if (options_.journaled()) spec.interruption_points = journal_->Find(step, round, version);
  deadline_ = clock_.Now() + round_time_;
  time_adapted_ = false;
  TANDEM_ASSIGN_OR_RETURN(Round planned, Round::Plan(*buffer_, spec));
  const absl::Status fits = planned.CheckInterruptionPoints();
  if (!fits.ok()) {
    notices_.push_back(
        fmt::format("step {}, round {}: the journal does not match and is ignored from here "
                    "({}); the step is repeated with other interruption points",
                    step, round, std::string(fits.message())));
    journal_->ForgetFrom(step, round);
    spec.interruption_points.reset();
    TANDEM_ASSIGN_OR_RETURN(planned, Round::Plan(*buffer_, spec));
  }
  round_ = std::move(planned);
  return round_->MakeRequests();
}

absl::Status RoundRunner::Put(const Sample& sample) {
  if (!round_) return Internal("sample {:#x} was returned outside of a round", sample.sample_id);
  return round_->Put(sample);
}

bool RoundRunner::RoundIsOver(bool stop) const {
  if (round_ && round_->spec().interruption_points) return false;
  if (stop) return true;
  return BatchIsComplete() || clock_.Now() >= deadline_;
}

void RoundRunner::AdaptRoundTime() {
  // A repeated round ends where the journal says, which tells nothing of the engine's speed.
  if (round_->spec().interruption_points) return;
  const RoundCounts round = round_->Counts();
  if (round.generated_tokens > 0 && std::exchange(doubled_, false)) {
    notices_.push_back(fmt::format(
        "step {}: rollout.partial.round_seconds={} is too short for a token; rounds last {} from "
        "here on",
        round_->spec().step, options_.round_seconds, absl::FormatDuration(round_time_)));
  }
  const bool no_progress = round.samples > 0 && round.generated_tokens == 0;
  if (!no_progress || clock_.Now() < deadline_) return;
  round_time_ *= 2;
  doubled_ = true;
}

absl::Status RoundRunner::EndRound() {
  if (!std::exchange(time_adapted_, true)) AdaptRoundTime();
  if (!options_.journaled()) return absl::OkStatus();
  const RoundSpec& spec = round_->spec();
  return journal_->Append(spec.step, spec.round, spec.version, round_->GetInterruptionPoints());
}

absl::Status RoundRunner::NoBatch(int64_t step, int64_t rounds, int64_t wanted) const {
  // InvalidArgument, as no recovery would help.
  return InvalidArgument(
      "step {}: after {} rounds (rollout.partial.max_rounds_without_batch) the batch of {} groups "
      "is not full: {}. Raise {}, or the number of rounds",
      step, rounds, wanted, buffer_->Counts().Text(), KeysThatEndRounds(options_));
}

}  // namespace tandem
