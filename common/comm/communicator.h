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

  // Concatenates the contributions of all ranks into `all`, in rank order. `bytes_per_rank` has
  // world_size entries, equal on all ranks. `mine` may point to its place in `all`. A rank that
  // passes a null `all` makes the call but contributes and receives nothing.
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
  // For one tensor.
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

  // The same ranks as a group for data in host memory; on a CPU this is the group itself. Calls on
  // both groups count as one sequence, which all ranks make in the same order.
  virtual Communicator& host() { return *this; }

  // For a device that computes on a stream. Mark returns a token for all work enqueued so far.
  // A collective normally starts on the device after everything that was enqueued when the
  // collective was called; after StartAt(mark) it starts after the work before the mark, so that it
  // does not wait for work that it is meant to overlap. StartAt(0) restores the default. Mark is
  // called on the thread that enqueues the device's work, at most 32 marks before the collective.
  // Both do nothing where calls compute at once, as on a CPU.
  virtual uint64_t Mark() { return 0; }
  virtual void StartAt(uint64_t /*mark*/) {}

  // Makes pending and later calls fail on all ranks, with `reason`. Any thread.
  virtual void Abort(const std::string& reason) = 0;
};

// Tells ranks of each other's failures before a collective in which they would wait for the failed
// ones. Collective. Every rank passes the outcome of its own work and a number. If all succeeded,
// returns the numbers of all ranks. Otherwise returns the rank's own failure or, if it had none,
// Aborted with FailureOrigin::kAnotherRank, which names `what` and the lowest rank that failed.
absl::StatusOr<std::vector<int64_t>> Agree(Communicator& communicator,
                                           const absl::Status& mine,
                                           const std::string& what,
                                           int64_t number = 0);

// A group over host memory, on which a group of devices is built. Besides collectives it tells a
// rank that waits for its device whether the group has ended, at any time and on any thread, also
// while a collective runs.
class HostGroup : public Communicator {
 public:
  // OK, or the reason why the group has ended.
  virtual absl::Status status() const = 0;
  // Ends the group on all ranks. The first reason wins; returns that one.
  virtual absl::Status Fail(const absl::Status& why) = 0;

  // Publishes this rank's progress, a number that starts at 0 and only grows.
  virtual void ShowProgress(uint64_t progress) = 0;
  virtual uint64_t ProgressOf(int rank) const = 0;
  // A rank whose process ended before its progress reached `wanted`, or -1. Rank 0 watches all
  // ranks; the others watch rank 0, which tells them of other losses through Fail.
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
