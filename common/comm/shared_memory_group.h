// The memory that a group shares: one control line per rank, the abort word, and two staging
// buffers per rank.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/base/mutex.h"
#include "common/comm/shared_memory_communicator.h"
#include "common/process/local_socket.h"

namespace tandem {

// Waits and wakes across processes on a word of shared memory. The wait returns at a change, at the
// timeout, or spuriously.
void WaitWhileEqual(std::atomic<uint32_t>* word, uint32_t value, absl::Duration timeout);
void WakeAll(std::atomic<uint32_t>* word);

class SharedSegment {
 public:
  // What rank r has published: `steps` grows by one per step, after the step's `call` (which
  // collective, so that ranks can see that they make the same one) and its staging buffer.
  struct alignas(64) RankLine {
    std::atomic<uint32_t> steps;
    uint32_t unused;
    uint64_t call[2];                // of even and odd steps
    std::atomic<uint64_t> progress;  // HostGroup::ShowProgress
  };
  // Why rank r gave up. Every rank has its own, which is complete before abort_word() names it: no
  // rank can see the group aborted without its reason.
  struct alignas(64) Reason {
    int32_t code;
    char text[508];
  };

  static int64_t Bytes(int world_size, int64_t staging_bytes);
  // `fd` has at least Bytes(...), zeroed when made. One mapping per rank: it writes that rank's
  // parts.
  static absl::StatusOr<std::unique_ptr<SharedSegment>> Map(UniqueFd fd,
                                                            int rank,
                                                            int world_size,
                                                            int64_t staging_bytes);
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  RankLine& line(int rank) const;
  std::byte* staging(int rank, uint32_t step) const;
  int64_t staging_bytes() const { return staging_bytes_; }

  // The first reason stays; wakes everybody. Any thread.
  void Abort(const absl::Status& status);
  // OK, or the reason of the abort; FailureOrigin::kAnotherRank where that is a rank gone or late.
  absl::Status status() const;

 private:
  SharedSegment() = default;
  // 0, or 1 + the rank whose reason ended the group.
  std::atomic<uint32_t>& abort_word() const {
    return *reinterpret_cast<std::atomic<uint32_t>*>(base_);
  }
  Reason& reason(int rank) const;

  std::byte* base_ = nullptr;
  int64_t bytes_ = 0;
  // Guards this rank's reason, which is in the segment and not a member that ABSL_GUARDED_BY could
  // annotate.
  Mutex own_reason_mutex_;
  int rank_ = 0;
  int world_size_ = 0;
  int64_t staging_bytes_ = 0;
};

// How the ranks of a group find each other and get the segment's descriptor.
struct GroupLink {
  UniqueFd segment;
  int64_t staging_bytes = 0;
  // To each other rank on rank 0 (by rank, [0] unused), to rank 0 alone on the others. They carry
  // nothing after the rendezvous: their end tells that the process behind is gone.
  std::vector<UniqueFd> connections;
};

// Errors: JoinSharedMemoryGroup's.
absl::StatusOr<GroupLink> MeetGroup(const SharedMemoryGroupOptions& options);

}  // namespace tandem
