#include "common/comm/shared_segment.h"

#include <cerrno>
#include <climits>
#include <cstring>

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/failure_origin.h"
#include "common/base/round_up.h"
#include "common/base/status_macros.h"
#include "common/device/shared_memory.h"

namespace tandem {
namespace {

constexpr int64_t kPageBytes = 4096;
constexpr int64_t kAbortWordBytes = 64;  // a cache line: all ranks poll it

int64_t ControlBytes(int world_size) {
  const auto per_rank =
      static_cast<int64_t>(sizeof(SharedSegment::RankLine) + sizeof(SharedSegment::Reason));
  return RoundUp(kAbortWordBytes + world_size * per_rank, kPageBytes);
}

}  // namespace

void WaitWhileEqual(std::atomic<uint32_t>* word, uint32_t value, absl::Duration timeout) {
  const timespec relative = absl::ToTimespec(timeout);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT, value, &relative, nullptr, 0);
}

void WakeAll(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

int64_t SharedSegment::Bytes(int world_size, int64_t staging_bytes) {
  return ControlBytes(world_size) + 2 * world_size * RoundUp(staging_bytes, kPageBytes);
}

absl::StatusOr<std::unique_ptr<SharedSegment>> SharedSegment::Map(UniqueFd fd,
                                                                  int rank,
                                                                  int world_size,
                                                                  int64_t staging_bytes) {
  const int64_t bytes = Bytes(world_size, staging_bytes);
  TANDEM_RETURN_IF_ERROR(CheckSharedMemory(fd.get(), bytes));
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) {
    return MakeStatus(absl::StatusCode::kResourceExhausted,
                      "cannot map {} bytes of shared memory for collectives: {}", bytes,
                      strerror(errno));
  }
  std::unique_ptr<SharedSegment> segment(new SharedSegment());
  segment->base_ = static_cast<std::byte*>(base);
  segment->bytes_ = bytes;
  segment->rank_ = rank;
  segment->world_size_ = world_size;
  segment->staging_bytes_ = RoundUp(staging_bytes, kPageBytes);
  return segment;
}

SharedSegment::~SharedSegment() { munmap(base_, bytes_); }

SharedSegment::RankLine& SharedSegment::line(int rank) const {
  return reinterpret_cast<RankLine*>(base_ + kAbortWordBytes)[rank];
}

SharedSegment::Reason& SharedSegment::reason(int rank) const {
  return reinterpret_cast<Reason*>(&line(world_size_))[rank];  // after the last rank's line
}

std::byte* SharedSegment::staging(int rank, uint32_t step) const {
  return base_ + ControlBytes(world_size_) + (2 * rank + step % 2) * staging_bytes_;
}

void SharedSegment::Abort(const absl::Status& status) {
  absl::MutexLock lock(&abort_mutex_);
  if (abort_word().load(std::memory_order_acquire) == 0) {
    Reason& mine = reason(rank_);
    mine.code = static_cast<int32_t>(status.code());
    const std::string text(status.message());
    strncpy(mine.text, text.c_str(), sizeof(mine.text) - 1);
    uint32_t expected = 0;  // stays as it is if another rank was faster
    abort_word().compare_exchange_strong(expected, rank_ + 1, std::memory_order_acq_rel);
  }
  for (int rank = 0; rank < world_size_; ++rank) WakeAll(&line(rank).steps);
}

absl::Status SharedSegment::status() const {
  const uint32_t word = abort_word().load(std::memory_order_acquire);
  if (word == 0) return absl::OkStatus();
  const int rank = static_cast<int>(word) - 1;
  if (rank >= world_size_) return Internal("the group's abort word names no rank: {}", word);
  absl::Status why(static_cast<absl::StatusCode>(reason(rank).code), reason(rank).text);
  const bool by_peer =
      absl::IsUnavailable(why) || absl::IsDeadlineExceeded(why) || absl::IsAborted(why);
  return WithOrigin(std::move(why), by_peer ? FailureOrigin::kAnotherRank : FailureOrigin::kHere);
}

}  // namespace tandem
