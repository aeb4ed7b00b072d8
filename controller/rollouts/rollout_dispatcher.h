// Spreads groups over rollouts and collects their samples.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/base/clock.h"
#include "common/types/sample.h"
#include "controller/workers/rollout_client.h"

namespace tandem {

// The largest message that a request is split into; receivers accept twice as much
// (common/net/server.cc).
inline constexpr int64_t kMaxRequestBytes = int64_t{4} << 20;

// Splits a group into requests whose messages have at most `max_bytes` each, with its samples in
// order and its request id; a group that fits, or that continues no samples, stays one request.
// InvalidArgument: a single sample is too large.
absl::StatusOr<std::vector<GroupRequest>> SplitRequest(GroupRequest group, int64_t max_bytes);

// Requests to abort at one rollout.
struct RequestsToAbort {
  std::shared_ptr<RolloutClient> client;
  int rank = 0;
  std::vector<std::string> request_ids;  // at least one
};

// Calls RolloutClient::Abort on all rollouts at once, so that a hanging rollout delays no other;
// returns when all have answered. Failures are only logged: the stream of the aborted
// samples reports them as well.
void AbortRequests(const std::vector<RequestsToAbort>& wanted);

struct Replica {
  int rank = 0;
  std::shared_ptr<RolloutClient> client;
};

// Replicas that join a dispatch in progress, with further groups to generate.
struct JoiningReplicas {
  std::vector<Replica> replicas;
  std::vector<GroupRequest> groups;
};

// The outcome of one call to Dispatch.
struct DispatchResult {
  std::vector<int> lost_ranks;           // replicas that failed as if they were gone
  std::vector<GroupRequest> unfinished;  // groups with the sample ids that are still missing
  // Internal: a group was abandoned, and the dispatch with it.
  absl::Status abandoned;
};

// A group is sent to the replica with the fewest samples in flight, and waits while all replicas
// have `max_in_flight_samples`. A group that names its replica (GroupRequest::rank) is sent there
// at once, or waits until that replica rejoins. When a replica fails, its unfinished groups are
// sent to the others. A group that was in flight in two such failures is then generated alone, and
// abandoned when two more replicas fail while they generate only that group. Which replica serves a
// group does not change its samples: they are keyed by sample id.
//
// A round of partial rollout may end early: from then on groups with GroupRequest::interruptible
// are not sent, and those in flight are aborted. Their samples are delivered as kAborted with the
// tokens they have, which may be no more than they were continued from. A sample that is not
// delivered, as its group was not sent or its replica was lost after the end, is unchanged and can
// be requested in another dispatch.
class RolloutDispatcher {
 public:
  struct Options {
    int64_t max_in_flight_samples = 128;  // per replica; one group at least is always in flight
    // Of the tokenizer: ids of response tokens are below it (CheckAnswer).
    int64_t vocab_limit = std::numeric_limits<int32_t>::max();
    std::function<bool()> interrupted;  // polled between samples; empty: never
    // Polled between samples until it returns true once, which ends the round; empty: never.
    std::function<bool()> end_round;
    // Both are called by the thread of Dispatch, and may be empty. on_lost: a replica's process
    // failed. rejoined: polled between samples for replicas that join now; an error ends the
    // dispatch.
    std::function<void(const Replica&)> on_lost;
    std::function<absl::StatusOr<JoiningReplicas>()> rejoined;
    // Times the repetition of an abort that failed, or that reached the rollout before its request.
    Clock* clock = &RealClock();
    // A group whose message would be larger is split into several requests with the same id.
    int64_t max_request_bytes = kMaxRequestBytes;
  };

  explicit RolloutDispatcher(Options options) : options_(std::move(options)) {}

  // Blocks until one of these holds:
  // - every sample was delivered;
  // - the round has ended, and every sample that is not interruptible was delivered;
  // - no replica is left that may generate what is missing. DispatchResult::unfinished then has
  //   those samples, except the ones that the end of the round interrupted.
  // `on_sample` is called on this thread, once per sample id: with kAborted only after the end of
  // the round, with kCut for samples that have the tokens of their round.
  // Errors end the dispatch, after requests in flight were aborted and waited for:
  // - Cancelled: interrupted.
  // - InvalidArgument: an interruptible group has no request id, or that of a group that is not; a
  //   continuation does not fit a request.
  // - DataLoss: a sample is not an answer to its request (CheckAnswer); names the rollout.
  // - Any error of `load_continued`, `on_sample` or `rejoined`.
  // - A failure that another replica would repeat (InvalidArgument, ResourceExhausted,
  // Internal...).
  absl::StatusOr<DispatchResult> Dispatch(std::vector<GroupRequest> groups,
                                          const std::vector<Replica>& replicas,
                                          const std::function<absl::Status(Sample)>& on_sample);

 private:
  const Options options_;
};

}  // namespace tandem
