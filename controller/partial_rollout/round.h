// One round of generation over the rollout buffer: what it asks of the rollouts, and what returns.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/types/sample.h"
#include "controller/partial_rollout/buffer/rollout_buffer.h"
#include "controller/partial_rollout/buffer/round_spec.h"
#include "controller/workers/rollout_client.h"

namespace tandem {

// What a round does with one of its samples.
struct PlannedSample {
  bool sent = false;          // the rollouts were asked for more tokens of it
  bool out = false;           // and have not returned it yet
  bool is_final = false;      // may not be interrupted
  int64_t tokens_before = 0;  // response tokens before the round
  int64_t allowed = 0;        // new tokens; 0: up to the budget
};

// Used by one thread at a time, that of the buffer. Only the functions in
// GroupRequest::load_continued may be called by any thread at any time, also after the round.
class Round {
 public:
  // Plans the round: its samples are the unfinished ones of the buffer's oldest spec.groups
  // unfinished groups. Samples with tokens of max_versions - 1 older weight versions, or of a group
  // that is due, are final: they may not be interrupted. FailedPrecondition: a sample has tokens of
  // newer weights than the round's. `buffer` must outlive the round. Whoever gives
  // spec.interruption_points asks CheckInterruptionPoints before anything else.
  static absl::StatusOr<Round> Plan(RolloutBuffer& buffer, RoundSpec spec);

  const RoundSpec& spec() const { return spec_; }

  // FailedPrecondition: spec().interruption_points cannot be of this round, as a sample there is
  // not one of the round's samples, has more tokens already, or has none left to generate. The
  // message names it. OK where the spec has none.
  absl::Status CheckInterruptionPoints() const;

  // The requests, in the order in which the groups were drawn; GroupRequest::group is the buffer's
  // number of the group. Final samples of a group are in a request of their own, without cap and
  // not interruptible. The others are interruptible, unless the round is repeated from the journal.
  std::vector<GroupRequest> MakeRequests() const;

  // Stores a sample that a rollout returned in the buffer. It fits its request: the dispatcher has
  // checked it (controller/rollouts/sample_check.h). kStop and kLength finish it; kCut and
  // kAborted leave it for a later round, or finish it by length where its budget is used up.
  // DataLoss, naming the sample: it does not begin, bit for bit, with the tokens that the buffer
  // has; other weights than the round's sampled the rest; it has more tokens than the round allows,
  // or log-probs where the run has none, or none where it has them. NotFound: the buffer does not
  // have the sample; AlreadyExists: it was returned before, or was not requested.
  // With an error nothing is stored.
  absl::Status Put(const Sample& sample);

  // Counts so far, without groups that have left the buffer.
  RoundCounts Counts() const;
  // Where the round has left its unfinished samples, for RoundJournal, whether they were returned
  // or not. Final samples are included where their replica was lost and no other continued them.
  InterruptionPoints GetInterruptionPoints() const;

 private:
  Round(RolloutBuffer& buffer, RoundSpec spec) : buffer_(&buffer), spec_(std::move(spec)) {}

  // Plans the unfinished samples of `group`.
  void PlanGroup(const BufferedGroup& group, bool is_due);
  // For the samples at `positions` of `group`, which are all final or all not.
  GroupRequest MakeRequest(int64_t number,
                           const BufferedGroup& group,
                           const std::vector<size_t>& positions) const;
  // Check a returned sample: its length and versions against the round, and its beginning against
  // the stored tokens.
  absl::Status CheckGrowth(const Sample& sample, const PlannedSample& planned) const;
  absl::Status CheckBeginning(const Sample& sample, const BufferedSample& known) const;

  RolloutBuffer* buffer_;
  RoundSpec spec_;
  std::map<uint64_t, PlannedSample> samples_;  // of the round, by sample id
};

}  // namespace tandem
