// What one round of generation may do, and what it did.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

namespace tandem {

// How many response tokens each unfinished sample has after a round, by sample id.
using InterruptionPoints = std::map<uint64_t, int64_t>;

struct RoundSpec {
  int64_t step = 0;
  int64_t round = 0;         // of the step, from 0
  int64_t version = 0;       // of the weights that sample
  int64_t groups = 0;        // so many of the oldest unfinished groups, and `due_groups`; 0: all
  int64_t cap = 0;           // new tokens of a sample that is not final; 0: no cap
  int64_t max_versions = 8;  // see PartialOptions
  // Groups, by number, all of whose samples are final: DueGroups of rollout_buffer.h.
  std::set<int64_t> due_groups;
  // Set in a round that is repeated from the journal. Samples with an entry get exactly as many
  // tokens as they had after the round the first time (those that got none are not requested); the
  // others are generated to their end, as they were then, without `cap`. Nothing else interrupts
  // the round.
  std::optional<InterruptionPoints> interruption_points;
};

// Counts of a round so far.
struct RoundCounts {
  int64_t groups = 0;               // requested
  int64_t samples = 0;              // requested: the unfinished ones of `groups`
  int64_t final_samples = 0;        // of `samples`: may not be interrupted
  int64_t interrupted_samples = 0;  // of `samples`: unfinished
  int64_t tokens = 0;            // response tokens of `samples`, those of earlier rounds included
  int64_t generated_tokens = 0;  // of `tokens`: generated in this round
  // Tokens that rollouts computed again to continue the samples that were returned: their earlier
  // response tokens, and the prompt once per request.
  int64_t prefilled_again_tokens = 0;
};

// By when carried groups must be trained so that no token gets too old.
struct TrainingDeadlines {
  // Groups with tokens of this weight version or an older one may not wait for another step; those
  // of the `updates_per_step` versions after it may wait for one, and so on. -1: no group is due.
  int64_t due_version = -1;
  int64_t updates_per_step = 1;
  int64_t max_staleness = 0;  // steps
  int64_t batch_groups = 0;   // that a step trains
};

// How far generation may run ahead of training: the capacity rule of AReaL (Fu et al., "AReaL: A
// Large-Scale Asynchronous Reinforcement Learning System for Language Reasoning", eq. 3), in
// groups. With B groups per batch, N groups admitted so far and i batches trained, it demands
// floor((N - 1) / B) <= i + eta, which is N <= (i + eta + 1) * B. Batches are trained in order of
// admission, so each one was begun by weights at most eta batches older than those it trains. A
// batch counts as one weight version, however many updates are made of it. N - i * B groups are
// admitted and not trained yet, so the rule needs no counters that a recovery would have to
// restore. Where finished groups overtake older ones that are not finished, Deadlines says when
// they may not. Immutable; thread-safe.
class StalenessLimit {
 public:
  // `batch_groups` is B, at least 1; `max_staleness` is eta, at least 0.
  StalenessLimit(int64_t batch_groups, int64_t max_staleness)
      : batch_groups_(batch_groups), max_staleness_(max_staleness) {}

  // Fresh groups that may be admitted now, where `carried` groups are in the buffer and `training`
  // groups belong to a batch that has left it and whose weights are not served yet.
  int64_t MayAdmit(int64_t carried, int64_t training) const {
    return std::max<int64_t>(0, (max_staleness_ + 1) * batch_groups_ - carried - training);
  }

  // The newest weight version whose groups may not wait for another step, in a step under weights
  // of `version`: the next step may be `updates_per_step` versions further, and nothing that trains
  // may be more than max_staleness * updates_per_step versions old. Versions are counted, not
  // steps, as a step may skip updates.
  int64_t DueVersion(int64_t version, int64_t updates_per_step) const {
    return version - (max_staleness_ - 1) * updates_per_step - 1;
  }
  // The same for the steps that follow.
  TrainingDeadlines Deadlines(int64_t version, int64_t updates_per_step) const {
    return {.due_version = DueVersion(version, updates_per_step),
            .updates_per_step = updates_per_step,
            .max_staleness = max_staleness_,
            .batch_groups = batch_groups_};
  }

 private:
  const int64_t batch_groups_;
  const int64_t max_staleness_;
};

}  // namespace tandem
