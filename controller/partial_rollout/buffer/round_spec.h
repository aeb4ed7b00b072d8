// What one round of generation is allowed, and what came of it.
#pragma once

#include <algorithm>
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

// How far generation may run ahead of training.

// The capacity rule of AReaL (Fu et al., "AReaL: A Large-Scale Asynchronous Reinforcement Learning
// System for Language Reasoning", eq. 3), in groups: with B groups per batch, N groups admitted so
// far and i batches trained, floor((N - 1) / B) <= i + eta, which is N <= (i + eta + 1) * B. Then
// every batch that is trained in order of admission was begun by weights at most eta batches older
// than those that it trains. A batch counts as one version, however many updates are made of it.
// N - i * B are the groups that were admitted and are not trained yet: the rule needs no counters
// that a recovery would have to bring back. Immutable; thread-safe.
class StalenessLimit {
 public:
  // At least 1, and at least 0.
  StalenessLimit(int64_t batch_groups, int64_t max_staleness)
      : batch_groups_(batch_groups), max_staleness_(max_staleness) {}

  // Fresh groups that may be admitted now, beside `carried` ones in the pool and `training` ones of
  // a batch that has left it and whose weights are not served yet.
  int64_t MayAdmit(int64_t carried, int64_t training) const {
    return std::max<int64_t>(0, (max_staleness_ + 1) * batch_groups_ - carried - training);
  }

  // In a step under weights of `version`: what was begun by this version or an older one may not
  // wait for another step, which may be up to `updates_per_step` versions further. So nothing that
  // trains is more than max_staleness * updates_per_step versions old. Fewer updates than that may
  // have been made of a step before (some are left out), which is why steps are not counted.
  int64_t DueVersion(int64_t version, int64_t updates_per_step) const {
    return version - (max_staleness_ - 1) * updates_per_step - 1;
  }

 private:
  const int64_t batch_groups_;
  const int64_t max_staleness_;
};

}  // namespace tandem
