// Runs the rounds of partial rollout: asks the rollouts for the next tokens of buffered samples,
// ends rounds early, and keeps a journal so that rounds can be repeated exactly after a crash.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/base/clock.h"
#include "controller/partial_rollout/buffer/rollout_buffer.h"
#include "controller/partial_rollout/partial_options.h"
#include "controller/partial_rollout/round.h"
#include "controller/partial_rollout/round_journal.h"

namespace tandem {

// One thread at a time: the train loop's, or BackgroundGeneration's until its End returns.
class RoundRunner {
 public:
  // `clock` must outlive it.
  RoundRunner(const PartialOptions& options,
              std::unique_ptr<RolloutBuffer> buffer,
              std::unique_ptr<RoundJournal> journal,
              Clock& clock)
      : options_(options), buffer_(std::move(buffer)), journal_(std::move(journal)), clock_(clock) {
    if (options.round_seconds > 0) round_time_ = absl::Seconds(options.round_seconds);
  }

  const PartialOptions& options() const { return options_; }
  RolloutBuffer& buffer() { return *buffer_; }
  const RolloutBuffer& buffer() const { return *buffer_; }

  // Adds the fresh prompts that the next round lacks, at most `admitted`, as returned by `draw`.
  // Errors as `draw` and RolloutBuffer::Add.
  using Draw = std::function<absl::StatusOr<std::vector<Prompt>>(int64_t count)>;
  absl::Status TopUpPrompts(int64_t admitted, const Draw& draw);

  // Whether the journal knows this round: it is then repeated with the same interruption points.
  bool Journaled(int64_t step, int64_t round, int64_t version) const;
  // Whether the journal knows a later round, so that this one was the last of its step.
  bool JournaledAfter(int64_t step, int64_t round) const;

  // The requests of round `round` (from 0) of `step` to the rollouts, which serve weight version
  // `version`; `due_groups` as in RoundSpec. Where the journal's entry does not fit the buffer,
  // the journal is dropped from this round on, with a notice. Errors as Round::Plan.
  absl::StatusOr<std::vector<GroupRequest>> BeginRound(int64_t step,
                                                       int64_t round,
                                                       int64_t version,
                                                       std::set<int64_t> due_groups);
  // Whether until_groups would end a round before it begins.
  bool BatchIsComplete() const {
    return options_.until_groups > 0 && buffer_->complete() >= options_.until_groups;
  }
  // Polled between samples: whether to interrupt the interruptible samples now. `stop`: the caller
  // wants the round to end. Always false in a round that is repeated from the journal.
  bool RoundIsOver(bool stop = false) const;
  // Stores a sample of the round in progress in the buffer. Errors as Round::Put; Internal: there
  // is none.
  absl::Status Put(const Sample& sample);
  // Of the newest round, which BeginRound must have begun.
  RoundCounts Counts() const { return round_->Counts(); }
  // Appends the round's interruption points to the journal, durable when it returns, if they depend
  // on more than the seed. A round that the clock ended before any sample got a token doubles the
  // time of the rounds that follow, as they would never get one either; the round in which the
  // doubled time was enough adds a notice. May be called again after an error.
  absl::Status EndRound();

  // The error after rounds that did not complete a batch of `wanted` groups, with counts and
  // remedy.
  absl::Status NoBatch(int64_t step, int64_t rounds, int64_t wanted) const;

  // Drops journal entries of steps up to `step`: no recovery goes back behind it.
  absl::Status Prune(int64_t step) { return journal_->Prune(step); }

  // Notices for the user since the last call. Each names its step and round.
  std::vector<std::string> TakeNotices() { return std::exchange(notices_, {}); }

 private:
  void AdaptRoundTime();

  const PartialOptions options_;
  const std::unique_ptr<RolloutBuffer> buffer_;
  const std::unique_ptr<RoundJournal> journal_;
  Clock& clock_;
  std::optional<Round> round_;  // the newest one
  Instant deadline_ = Instant::InfiniteFuture();
  absl::Duration round_time_ = absl::InfiniteDuration();
  bool doubled_ = false;       // round_time_ was doubled, and no notice says so yet
  bool time_adapted_ = false;  // to the newest round, once
  std::vector<std::string> notices_;
};

}  // namespace tandem
