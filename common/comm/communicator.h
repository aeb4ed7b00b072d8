// Collectives over one fixed group of ranks.
//
// All ranks make the same calls in the same order; zero bytes or counts are allowed and still
// join. Sums run in ascending rank order, so results repeat bit for bit. Blocking. Not thread-safe
// except Abort. Errors: DeadlineExceeded names the ranks that did not come; Unavailable names a
// rank that is gone; Aborted after Abort; Internal if ranks make different calls. After the first
// error the group is poisoned: every later call on any rank fails with it; form a new group.
//
// On a GPU (device_group.h) AllGatherV, ReduceScatterSums and Broadcast take device addresses; the
// few values of AllReduceSum are always in host memory, and so is all data for host().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/base/mutex.h"

namespace tandem {

enum class Accumulate { kReplace, kAdd };

// A tensor that is summed over ranks, each of which keeps a piece of the sum.
struct ScatteredSum {
  const float* full = nullptr;           // [sum of the counts], every rank's own
  std::vector<int64_t> counts_per_rank;  // world_size entries, equal on all ranks
  float* mine = nullptr;                 // [counts_per_rank[rank]]; does not overlap `full`
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  // all = the ranks' contributions, one after the other; bytes_per_rank has world_size entries,
  // equal on all ranks. `mine` may point to its place in `all`. With a null `all` this rank gives
  // and takes nothing.
  virtual absl::Status AllGatherV(const void* mine,
                                  const std::vector<int64_t>& bytes_per_rank,
                                  void* all) = 0;
  // The same with equal contributions; all has world_size * bytes.
  absl::Status AllGather(const void* mine, int64_t bytes, void* all) {
    return AllGatherV(mine, std::vector<int64_t>(world_size(), bytes), all);
  }
  // For each of `sums`: mine = (or +=) the sum over ranks of their piece of `full` for this rank.
  // One collective, however many tensors: through NCCL, ranks meet once and wait for their device
  // once. The bits do not depend on what is summed together.
  virtual absl::Status ReduceScatterSums(const std::vector<ScatteredSum>& sums,
                                         Accumulate accumulate) = 0;
  // The same of one tensor.
  absl::Status ReduceScatterSum(const float* full,
                                const std::vector<int64_t>& counts_per_rank,
                                float* mine,
                                Accumulate accumulate) {
    return ReduceScatterSums({{full, counts_per_rank, mine}}, accumulate);
  }
  // values [count] = sum over ranks, on every rank.
  virtual absl::Status AllReduceSum(double* values, int64_t count) = 0;
  virtual absl::Status AllReduceSum(float* values, int64_t count) = 0;
  // data [bytes] of `root` on every rank.
  virtual absl::Status Broadcast(void* data, int64_t bytes, int root) = 0;
  virtual absl::Status Barrier() = 0;

  // The same ranks for data in host memory, whatever the device is; on a CPU the group itself.
  // Calls on both groups are made in one order.
  virtual Communicator& host() { return *this; }

  // Where the device computes on a stream: how far that has been given work. A collective starts
  // once the device has got to where the stream was when it was called, or, after StartAt, at the
  // mark, so that what is computed beside a collective does not hold it back. StartAt(0): as
  // before. Mark is for the thread that gives work to the device, at most 32 marks before the
  // collective. Nothing where calls compute at once, as on a CPU.
  virtual uint64_t Mark() { return 0; }
  virtual void StartAt(uint64_t /*mark*/) {}

  // Makes pending and later calls fail on all ranks, with `reason`. Any thread.
  virtual void Abort(const std::string& reason) = 0;
};

// How ranks learn of each other's failures before a collective that would otherwise wait for them.

// Collective. Every rank brings the outcome of something local and a number; if all succeeded, the
// numbers of all ranks. Otherwise a rank's own failure or, where it had none, Aborted naming the
// lowest rank that failed in `what`, with FailureOrigin::kAnotherRank.
absl::StatusOr<std::vector<int64_t>> Agree(Communicator& communicator,
                                           const absl::Status& mine,
                                           const std::string& what,
                                           int64_t number = 0);

// A group over host memory that a group of devices is built on.

// Besides collectives, it tells a rank whose device waits whether the group has ended. This may be
// asked at any time and on any thread, whichever collective is under way.
class HostGroup : public Communicator {
 public:
  // OK, or why the group has ended.
  virtual absl::Status status() const = 0;
  // Ends the group with `why` on all ranks; the first reason stays. Returns the one that stays.
  virtual absl::Status Fail(const absl::Status& why) = 0;

  // A number that only grows, for the others to see; 0 at first.
  virtual void ShowProgress(uint64_t progress) = 0;
  virtual uint64_t ProgressOf(int rank) const = 0;
  // A rank whose process is gone before its progress was `wanted`, or -1. Rank 0 sees every rank,
  // the others rank 0: it tells them by Fail.
  virtual int FindGone(uint64_t wanted) const = 0;
};

// A group of one: gathers and sums nothing.
class SoloCommunicator : public Communicator {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  absl::Status AllGatherV(const void* mine,
                          const std::vector<int64_t>& bytes_per_rank,
                          void* all) override;
  absl::Status ReduceScatterSums(const std::vector<ScatteredSum>& sums,
                                 Accumulate accumulate) override;
  absl::Status AllReduceSum(double* values, int64_t count) override;
  absl::Status AllReduceSum(float* values, int64_t count) override;
  absl::Status Broadcast(void* data, int64_t bytes, int root) override;
  absl::Status Barrier() override;
  void Abort(const std::string& reason) override;

 private:
  absl::Status status();
  Mutex status_mutex_;
  absl::Status status_ ABSL_GUARDED_BY(status_mutex_);
};

}  // namespace tandem
