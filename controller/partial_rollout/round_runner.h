// Partial rollout of a run: rounds over the pool of carried groups, and what makes them repeatable.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/base/clock.h"
#include "controller/partial_rollout/buffer/rollout_buffer.h"
#include "controller/partial_rollout/partial_options.h"
#include "controller/partial_rollout/round_journal.h"

namespace tandem {

// One thread at a time: the train loop's, or the overlap's between its begin and its end.
class PartialRollout {
 public:
  // `clock` must outlive it.
  PartialRollout(const PartialOptions& options,
                 std::unique_ptr<SamplePool> pool,
                 std::unique_ptr<CutJournal> journal,
                 Clock& clock)
      : options_(options), pool_(std::move(pool)), journal_(std::move(journal)), clock_(clock) {
    if (options.round_seconds > 0) round_time_ = absl::Seconds(options.round_seconds);
  }

  const PartialOptions& options() const { return options_; }
  SamplePool& pool() { return *pool_; }
  const SamplePool& pool() const { return *pool_; }

  // Adds the fresh prompts that the next round lacks, as `draw` gives them; with overlap no more
  // than the capacity rule (StalenessLimit) admits beside `training` groups of a batch that has
  // left the pool and whose weights are not served yet. Errors as `draw` and SamplePool::Add.
  using Draw = std::function<absl::StatusOr<std::vector<Prompt>>(int64_t count)>;
  absl::Status AddFresh(int64_t training, const Draw& draw);

  // What the journal knows of this round, which then is made again with the same cuts.
  bool Journaled(int64_t step, int64_t round, int64_t version) const;
  // Whether it knows a later one, so that this round was the last of its step's.
  bool JournaledAfter(int64_t step, int64_t round) const;

  // What round `round` (from 0) of `step` asks of the rollouts, which serve `version`; due_version
  // as in RoundOrder. A journal that does not fit the round is dropped from there on, with a line
  // in note(). Errors as SamplePool::Requests and CutJournal::ForgetFrom.
  absl::StatusOr<std::vector<GroupRequest>> BeginRound(int64_t step,
                                                       int64_t round,
                                                       int64_t version,
                                                       int64_t due_version = -1);
  // Whether a round would end by until_groups before it begins.
  bool BatchIsThere() const {
    return options_.until_groups > 0 && pool_->whole() >= options_.until_groups;
  }
  // Polled between samples: whether what runs and may be cut is to be cut now, as it is where the
  // caller wants to `stop`. Never in a round that is made again.
  bool RoundIsOver(bool stop = false) const;
  // Writes down where its samples stand, durable when it returns, if that depends on more than the
  // seed. Rounds that the clock ends before any sample has a token more would go on so: each such
  // one doubles the time of those that follow, once for all, which note() tells of when it was
  // enough.
  absl::Status EndRound();

  // After rounds that did not fill a batch of `wanted` groups, with counts and remedy.
  absl::Status NoBatch(int64_t step, int64_t rounds, int64_t wanted) const;

  // Of a checkpoint's folder; an empty path: the run begins, with an empty pool.
  // `step`: finished ones.
  absl::Status Load(const std::string& checkpoint, const DataRows& rows, int64_t step);
  absl::Status Save(const std::string& checkpoint, int64_t step) const {
    return pool_->Save(checkpoint, step);
  }
  // Nobody goes back behind `step`.
  absl::Status Prune(int64_t step) { return journal_->Prune(step); }

  // For the user, since the last call; empty: nothing.
  std::string TakeNote() { return std::exchange(note_, ""); }

 private:
  void LearnRoundTime();

  const PartialOptions options_;
  const std::unique_ptr<SamplePool> pool_;
  const std::unique_ptr<CutJournal> journal_;
  Clock& clock_;
  RoundOrder order_;  // of the round under way
  absl::Time deadline_ = absl::InfiniteFuture();
  absl::Duration round_time_ = absl::InfiniteDuration();
  bool doubled_ = false;  // and not told yet
  std::string note_;
};

}  // namespace tandem
