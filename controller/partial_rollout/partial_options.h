// The settings of partial rollout (docs/guides/partial_rollout.md).
#pragma once

#include <cstdint>

namespace tandem {

namespace v1 {
class Config;
}

struct PartialOptions {
  // Groups wait in the rollout buffer: any of cap, until_groups, round_seconds, overlap and
  // one_step_off is set.
  bool enabled = false;
  int64_t cap = 0;               // response tokens of a sample in one round; 0: none
  int64_t until_groups = 0;      // complete groups that end a round; 0: it waits for all
  double round_seconds = 0;      // after which a round ends; 0: no limit
  int64_t groups_per_round = 0;  // unfinished groups in a round, carried ones first
  int64_t max_versions = 8;      // weight versions that may sample one response
  // Rounds per batch; dynamic sampling restarts the count for each batch that it asks for.
  int64_t max_rounds_without_batch = 1000;
  bool overlap = false;
  // With overlap: how old the oldest token of a batch may be (StalenessLimit), in steps of
  // updates_per_step weight versions.
  int64_t max_staleness = 1;
  int64_t updates_per_step = 1;
  bool one_step_off = false;  // trainer.off_policy_steps: OneStepOff

  // Settings of the run that FreshPrompts uses.
  int64_t train_batch_size = 0;
  int64_t response_length = 0;

  // Where rounds end depends on more than the seed, so that RoundJournal must record it.
  bool journaled() const { return until_groups > 0 || round_seconds > 0 || overlap; }
  // No sample is ever interrupted: the cap is beyond the longest response, and no other limit is
  // set.
  bool cuts_nothing() const { return !journaled() && (cap <= 0 || cap >= response_length); }
  // The number of prompts to draw for the next round, where `unfinished` groups of the buffer
  // continue in it and `complete` groups wait to be trained. Fills the round up to
  // groups_per_round; where nothing is interrupted, draws no more than the batch lacks, so that a
  // buffer that was filled under earlier settings empties.
  int64_t FreshPrompts(int64_t unfinished, int64_t complete) const;
};

// `config` must be validated. The default of max_rounds_without_batch is:
// - with a token cap alone, the number of rounds that the oldest train_batch_size groups can need.
//   The oldest groups_per_round unfinished groups are in every round until they are complete, which
//   takes at most ceil(response_length / cap) rounds; then the next ones follow. So it is
//   ceil(response_length / cap) * ceil(train_batch_size / groups_per_round);
// - where rounds can end before their cap, 1000, or that number if it is larger.
PartialOptions MakePartialOptions(const v1::Config& config);

}  // namespace tandem
