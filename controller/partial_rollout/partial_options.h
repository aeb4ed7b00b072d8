// Partial rollout as the train loop sees it (docs/guides/partial_rollout.md).
#pragma once

#include <cstdint>

namespace tandem {

namespace v1 {
class Config;
}

struct PartialOptions {
  bool enabled = false;          // any of cap, until_groups, round_seconds and overlap is set
  int64_t cap = 0;               // response tokens of a sample in one round; 0: none
  int64_t until_groups = 0;      // whole groups that end a round; 0: it waits for all
  double round_seconds = 0;      // after which a round ends; 0: no limit
  int64_t groups_per_round = 0;  // that have unfinished samples, carried ones first
  int64_t max_versions = 8;      // that one sample may have tokens of
  // Of one batch (dynamic sampling begins to count anew for each that it asks for).
  int64_t max_rounds_without_batch = 1000;
  bool overlap = false;
  // With overlap: how far the oldest token of a batch may be behind (StalenessLimit), in steps of
  // updates_per_step weight versions.
  int64_t max_staleness = 1;
  int64_t updates_per_step = 1;

  // Of the run, for FreshPrompts.
  int64_t train_batch_size = 0;
  int64_t response_length = 0;

  // Cuts depend on more than the seed, so that CutJournal has to hold them.
  bool journaled() const { return until_groups > 0 || round_seconds > 0 || overlap; }
  // No sample is ever cut: a cap that no response reaches, and nothing else.
  bool cuts_nothing() const { return !journaled() && (cap <= 0 || cap >= response_length); }
  // Prompts to draw for the next round, beside `unfinished` groups of the pool that go on in it and
  // `whole` ones that wait there to be trained. They fill the round up to groups_per_round; where
  // nothing is cut no more than the batch lacks, so that a pool of earlier settings runs empty.
  int64_t FreshPrompts(int64_t unfinished, int64_t whole) const;
};

// `config` is validated. What max_rounds_without_batch is by default:
// - with a token cap as many rounds as the oldest train_batch_size groups can need. The oldest
//   groups_per_round unfinished ones are in every round until they are whole, which takes
//   ceil(response_length / cap) rounds at most; then come those behind them. So
//   ceil(response_length / cap) * ceil(train_batch_size / groups_per_round);
// - 1000, or more by that rule, where rounds can end before their cap.
PartialOptions MakePartialOptions(const v1::Config& config);

}  // namespace tandem
