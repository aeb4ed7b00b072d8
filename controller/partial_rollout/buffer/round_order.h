// What one round of generation is allowed, and what came of it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace tandem {

// Response tokens that samples have after a round that left them unfinished, by sample id.
using RoundCuts = std::map<uint64_t, int64_t>;

struct RoundOrder {
  int64_t step = 0;
  int64_t round = 0;         // of the step, from 0
  int64_t version = 0;       // of the weights that sample
  int64_t groups = 0;        // at most so many with unfinished samples, oldest first; 0: all
  int64_t cap = 0;           // new tokens of a sample that is not final; 0: no cap
  int64_t max_versions = 8;  // see PartialOptions
  // Groups with tokens of this or an older version are final as a whole: they may not wait for
  // another step. -1: none.
  int64_t due_version = -1;
  // A round that is made again: its samples that are here get exactly as many tokens as they had
  // after it the first time (none more: they are not sent), the others run to their end, as they
  // did then, without `cap`. Nothing else may cut it.
  std::optional<RoundCuts> cuts;
};

// Of a round, so far.
struct RoundCounts {
  int64_t groups = 0;         // issued
  int64_t samples = 0;        // issued, those of `groups` that were unfinished
  int64_t final_samples = 0;  // of `samples`: may not be cut
  int64_t cut_samples = 0;    // of `samples`: unfinished
  int64_t tokens = 0;         // response tokens that `samples` have, those of older rounds included
  int64_t generated_tokens = 0;  // of `tokens`: of this round
  // Of samples that came back: what they had before, with the prompts in front (one for each
  // request), which is computed once more.
  int64_t prefilled_again_tokens = 0;
};

}  // namespace tandem
