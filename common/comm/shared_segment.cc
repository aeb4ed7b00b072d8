#include "common/comm/shared_segment.h"

#include <cerrno>
#include <climits>
#include <cstring>

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/status_macros.h"

namespace tandem {
namespace {

constexpr int64_t kPageBytes = 4096;

int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

int64_t ControlBytes(int world_size) {
  return RoundUp(static_cast<int64_t>(sizeof(SharedSegment::AbortLine)) +
                     world_size * static_cast<int64_t>(sizeof(SharedSegment::RankLine)),
                 kPageBytes);
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
  segment->world_size_ = world_size;
  segment->staging_bytes_ = RoundUp(staging_bytes, kPageBytes);
  return segment;
}

SharedSegment::~SharedSegment() { munmap(base_, bytes_); }

SharedSegment::RankLine& SharedSegment::line(int rank) const {
  return reinterpret_cast<RankLine*>(base_ + sizeof(AbortLine))[rank];
}

std::byte* SharedSegment::staging(int rank, uint32_t step) const {
  return base_ + ControlBytes(world_size_) + (2 * rank + step % 2) * staging_bytes_;
}

void SharedSegment::Abort(const absl::Status& reason) {
  AbortLine& line = abort_line();
  uint32_t expected = kRunning;
  if (line.state.compare_exchange_strong(expected, kWriting)) {
    line.code = static_cast<int32_t>(reason.code());
    const std::string text(reason.message());
    strncpy(line.reason, text.c_str(), sizeof(line.reason) - 1);
    line.state.store(kAborted, std::memory_order_release);
  }
  for (int rank = 0; rank < world_size_; ++rank) WakeAll(&this->line(rank).steps);
}

absl::Status SharedSegment::status() const {
  const AbortLine& line = abort_line();
  switch (line.state.load(std::memory_order_acquire)) {
    case kRunning:
      return absl::OkStatus();
    case kAborted:
      return absl::Status(static_cast<absl::StatusCode>(line.code), line.reason);
    default:
      // Somebody is writing the reason, or died while writing it.
      return MakeStatus(absl::StatusCode::kAborted, "the group was aborted");
  }
}

}  // namespace tandem
