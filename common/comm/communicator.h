// Collectives over one fixed group of ranks.
//
// All ranks make the same calls in the same order; zero bytes or counts are allowed and still
// join. Sums run in ascending rank order, so results repeat bit for bit. Blocking. Not thread-safe
// except Abort. Errors: DeadlineExceeded names the ranks that did not come; Unavailable names a
// rank that is gone; Aborted after Abort; Internal if ranks make different calls. After the first
// error the group is poisoned: every later call on any rank fails with it; form a new group.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>

namespace tandem {

enum class Accumulate { kReplace, kAdd };

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  // all = the ranks' contributions, one after the other; bytes_per_rank has world_size entries,
  // equal on all ranks. `mine` may already lie at its place in `all`.
  virtual absl::Status AllGatherV(const void* mine,
                                  const std::vector<int64_t>& bytes_per_rank,
                                  void* all) = 0;
  // The same with equal contributions; all has world_size * bytes.
  absl::Status AllGather(const void* mine, int64_t bytes, void* all) {
    return AllGatherV(mine, std::vector<int64_t>(world_size(), bytes), all);
  }
  // `full` [sum of counts] is every rank's own; mine [counts_per_rank[rank]] = (or +=) the sum over
  // ranks of their piece for this rank. `mine` does not overlap `full`.
  virtual absl::Status ReduceScatterSum(const float* full,
                                        const std::vector<int64_t>& counts_per_rank,
                                        float* mine,
                                        Accumulate accumulate) = 0;
  // values [count] = sum over ranks, on every rank.
  virtual absl::Status AllReduceSum(double* values, int64_t count) = 0;
  virtual absl::Status AllReduceSum(float* values, int64_t count) = 0;
  // data [bytes] of `root` on every rank.
  virtual absl::Status Broadcast(void* data, int64_t bytes, int root) = 0;
  virtual absl::Status Barrier() = 0;

  // Makes pending and later calls fail on all ranks, with `reason`. Any thread.
  virtual void Abort(const std::string& reason) = 0;
};

}  // namespace tandem
