// How much one request may carry.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/base/clock.h"
#include "common/types/sample.h"
#include "controller/workers/rollout_client.h"

namespace tandem {

// Our messages stay below it; a receiver takes twice as much (common/net/server.cc).
inline constexpr int64_t kMaxRequestBytes = int64_t{4} << 20;

// The group as requests whose messages have at most `max_bytes` each, its samples in order, all
// with its request id. One, where that is enough or where nothing is continued. InvalidArgument: a
// single sample is too large.
absl::StatusOr<std::vector<GroupRequest>> SplitRequest(GroupRequest group, int64_t max_bytes);

// Ends requests at several rollouts at once.
struct RequestsToAbort {
  std::shared_ptr<RolloutClient> client;
  int rank = 0;
  std::vector<std::string> request_ids;  // at least one
};

// RolloutClient::Abort on a thread for each, so that one that hangs holds up no other; returns when
// all have answered. One that fails is logged: whoever waits for its samples sees what became of
// it.
void AbortRequests(const std::vector<RequestsToAbort>& wanted);

// Spreads groups over rollouts and gathers their samples.
struct Replica {
  int rank = 0;
  std::shared_ptr<RolloutClient> client;
};

// Replicas that join a dispatch, and what they are to do besides.
struct Joining {
  std::vector<Replica> replicas;
  std::vector<GroupRequest> groups;
};

// What one call to Dispatch got done.
struct DispatchResult {
  std::vector<int> lost_ranks;     // replicas that failed as if they were gone
  std::vector<GroupRequest> rest;  // groups with the sample ids that are still missing
  // Internal: a group was given up, and the dispatch with it.
  absl::Status given_up;
};

// A group goes to the replica with the fewest samples in flight, and waits here while all have
// `max_in_flight_samples`. One that names its replica (GroupRequest::rank) goes there at once, or
// waits for its return. What a replica leaves unfinished when it fails goes to the others; a
// group that was there at two losses is then generated alone, and given up when a replica was lost
// twice while it had nothing else to do.
// Which replica serves a group has no influence on its samples: they are keyed by sample id.
//
// A dispatch may be cut: from then on groups with GroupRequest::interruptible are not sent any
// more, and those in flight are aborted. What their samples have comes as kAborted (maybe no token
// more than they went on from). A sample that never comes, since it was not sent or was lost with
// its replica after the cut, is as it was before: to be gone on with, or made anew, in another
// dispatch.
class RolloutDispatcher {
 public:
  struct Options {
    int64_t max_in_flight_samples = 128;  // per replica; one group at least is always in flight
    std::function<bool()> interrupted;    // polled between samples; empty: never
    // Polled between samples until it is true once; empty: never. From then on the dispatch is cut.
    std::function<bool()> cut;
    // Both are called from the thread of Dispatch, and may be empty: a replica failed as if it were
    // gone; polled between samples, who joins from now on. An error ends the dispatch.
    std::function<void(const Replica&)> on_lost;
    std::function<absl::StatusOr<Joining>()> returned;
    // Says when an abort that was in vain, or that came before its request, is made again.
    Clock* clock = &RealClock();
    // A group whose message would be larger goes in several requests of the same id.
    int64_t max_request_bytes = kMaxRequestBytes;
  };

  explicit RolloutDispatcher(Options options) : options_(std::move(options)) {}

  // Blocks until every sample has come, or, after a cut, every one that may not be cut; or until no
  // replica is left that may generate what is missing (the rest is then in the result, without what
  // was cut). `on_sample` is called from this thread, once per sample id: with kAborted only after
  // a cut, with kCut for those that have the tokens of their round. Cancelled: interrupted.
  // InvalidArgument: a group that may be cut has no request id, or that of one that may not; a
  // continuation larger than a request may be. Any status of `load_continued`, `on_sample` or
  // `returned`, and failures that another replica would repeat (InvalidArgument, ResourceExhausted,
  // Internal, ...), end the dispatch: what runs is aborted and waited for.
  absl::StatusOr<DispatchResult> Dispatch(std::vector<GroupRequest> groups,
                                          const std::vector<Replica>& replicas,
                                          const std::function<absl::Status(Sample)>& on_sample);

 private:
  const Options options_;
};

}  // namespace tandem
