// The memory that a group shares: one control line per rank, the abort word, and two staging
// buffers per rank.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/device/local_socket.h"

namespace tandem {

// Waits and wakes across processes on a word of shared memory. The wait returns at a change, at the
// timeout, or for no reason.
void WaitWhileEqual(std::atomic<uint32_t>* word, uint32_t value, absl::Duration timeout);
void WakeAll(std::atomic<uint32_t>* word);

class SharedSegment {
 public:
  // What rank r has published: `steps` grows by one per step, after the step's `call` (which
  // collective, so that ranks can see that they make the same one) and its staging buffer.
  struct alignas(64) RankLine {
    std::atomic<uint32_t> steps;
    uint32_t unused;
    uint64_t call[2];  // of even and odd steps
  };
  enum AbortState : uint32_t { kRunning = 0, kWriting = 1, kAborted = 2 };
  struct AbortLine {
    std::atomic<uint32_t> state;
    int32_t code;
    char reason[504];
  };

  static int64_t Bytes(int world_size, int64_t staging_bytes);
  // `fd` has at least Bytes(...), zeroed when made.
  static absl::StatusOr<std::unique_ptr<SharedSegment>> Map(UniqueFd fd,
                                                            int world_size,
                                                            int64_t staging_bytes);
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  RankLine& line(int rank) const;
  std::byte* staging(int rank, uint32_t step) const;
  int64_t staging_bytes() const { return staging_bytes_; }

  // The first reason stays; wakes everybody. Any thread, any process.
  void Abort(const absl::Status& reason);
  // OK, or the reason of the abort.
  absl::Status status() const;

 private:
  SharedSegment() = default;
  AbortLine& abort_line() const { return *reinterpret_cast<AbortLine*>(base_); }

  std::byte* base_ = nullptr;
  int64_t bytes_ = 0;
  int world_size_ = 0;
  int64_t staging_bytes_ = 0;
};

}  // namespace tandem
