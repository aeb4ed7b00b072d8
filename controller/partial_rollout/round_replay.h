// Rounds of partial rollout with lengths that are known: what they would ask of the engine, step
// after step, if every step drew groups of the same lengths. Pure and deterministic.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

// A prompt and its samples, each as long as it gets where nothing cuts it.
struct ReplayGroup {
  int64_t prompt_tokens = 0;
  std::vector<int64_t> lengths;  // response tokens
};

struct RoundRules {
  int64_t cap = 1;           // new tokens of a sample in one round: rollout.partial
  int64_t max_versions = 8;  // under the last of them a sample runs to its end: likewise
  int64_t slots = 1;         // samples that run at once
};

struct RoundTotals {
  int64_t rounds = 0;
  int64_t whole_groups = 0;     // that those rounds finished
  int64_t steps = 0;            // of the engine
  int64_t tokens = 0;           // computed, prefilled ones included
  int64_t prefilled_again = 0;  // of those: prompts and prefixes of carried samples
};

// A round issues as many groups as `groups` has (a batch): carried ones first, oldest first, then
// fresh ones, which go through `groups` again and again. A batch of whole groups ends the step, and
// with it the weight version; without one the next round has the same version. Counted from where
// every age of group is carried; kCountedRounds rounds, more where no group became whole in them,
// but never above kMostRounds (whole_groups is 0 then).
inline constexpr int64_t kCountedRounds = 48;  // a multiple of 2, 3 and 4: whole cycles of splits
inline constexpr int64_t kMostRounds = 1024;
RoundTotals ReplayRounds(const std::vector<ReplayGroup>& groups, const RoundRules& rules);

}  // namespace tandem
