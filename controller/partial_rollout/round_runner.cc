#include "controller/partial_rollout/round_runner.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/base/status.h"
#include "controller/partial_rollout/buffer/round_spec.h"

namespace tandem {
namespace {

// The keys that cut a round: which of several does most cannot be told from the counts.
std::string CutBy(const PartialOptions& options) {
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

absl::Status PartialRollout::AddFresh(int64_t training, const Draw& draw) {
  int64_t fresh = options_.FreshPrompts(pool_->unfinished_groups(), pool_->whole());
  if (options_.overlap) {
    const StalenessLimit limit(options_.train_batch_size, options_.max_staleness);
    fresh = std::min(fresh, limit.MayAdmit(pool_->groups(), training));
  }
  if (fresh <= 0) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const std::vector<Prompt> prompts, draw(fresh));
  return pool_->Add(prompts);
}

bool PartialRollout::Journaled(int64_t step, int64_t round, int64_t version) const {
  return options_.journaled() && journal_->Find(step, round, version).has_value();
}

bool PartialRollout::JournaledAfter(int64_t step, int64_t round) const {
  return options_.journaled() && journal_->KnowsAfter(step, round);
}

absl::StatusOr<std::vector<GroupRequest>> PartialRollout::BeginRound(int64_t step,
                                                                     int64_t round,
                                                                     int64_t version,
                                                                     int64_t due_version) {
  order_ = {.step = step,
            .round = round,
            .version = version,
            .groups = options_.groups_per_round,
            .cap = options_.cap,
            .max_versions = options_.max_versions,
            .due_version = due_version};
  if (options_.journaled()) order_.cuts = journal_->Find(step, round, version);
  if (order_.cuts) {
    const absl::Status fits = pool_->CheckCuts(order_);
    if (!fits.ok()) {
      note_ = fmt::format(
          "step {}, round {}: the journal of cuts is of another history and is left out from here "
          "on ({}); the step is made again, but not as it was",
          step, round, std::string(fits.message()));
      TANDEM_RETURN_IF_ERROR(journal_->ForgetFrom(step, round));
      order_.cuts.reset();
    }
  }
  deadline_ = clock_.Now() + round_time_;
  return pool_->Requests(order_);
}

bool PartialRollout::RoundIsOver(bool stop) const {
  if (order_.cuts) return false;
  if (stop) return true;
  return BatchIsThere() || clock_.Now() >= deadline_;
}

void PartialRollout::LearnRoundTime() {
  if (order_.cuts) return;  // made again: it says nothing of the engine
  const RoundCounts round = pool_->round();
  if (round.generated_tokens > 0 && std::exchange(doubled_, false)) {
    note_ = fmt::format(
        "step {}: rollout.partial.round_seconds={} is too short for a token; rounds last {} from "
        "here on",
        order_.step, options_.round_seconds, absl::FormatDuration(round_time_));
  }
  const bool in_vain = round.samples > 0 && round.generated_tokens == 0;
  if (!in_vain || clock_.Now() < deadline_) return;
  round_time_ *= 2;
  doubled_ = true;
}

absl::Status PartialRollout::EndRound() {
  LearnRoundTime();
  if (!options_.journaled()) return absl::OkStatus();
  return journal_->Append(order_.step, order_.round, order_.version, pool_->CutSamples());
}

absl::Status PartialRollout::NoBatch(int64_t step, int64_t rounds, int64_t wanted) const {
  // Not a state that a recovery could mend.
  return InvalidArgument(
      "step {}: after {} rounds (rollout.partial.max_rounds_without_batch) the batch of {} groups "
      "is not full: {}. Raise {}, or the number of rounds",
      step, rounds, wanted, pool_->Counts().Text(), CutBy(options_));
}

absl::Status PartialRollout::Load(const std::string& checkpoint,
                                  const DataRows& rows,
                                  int64_t step) {
  if (!checkpoint.empty()) return pool_->Load(checkpoint, rows, step);
  return pool_->Clear();
}

}  // namespace tandem
