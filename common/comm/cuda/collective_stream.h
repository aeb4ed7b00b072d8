// The CUDA stream of a rank's collectives. Events order it against the compute stream. Its priority
// is higher, because other ranks wait for this rank's collectives.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/device/cuda/cuda_api.h"

namespace tandem {

// Usage: Begin, enqueue on stream(), End, wait until Finished. Mark is called on the thread that
// enqueues on the compute stream. All other methods are for one thread at a time, which may be a
// different one.
class CollectiveStream {
 public:
  // `api` outlives the object; `compute` is a stream of `device`.
  static absl::StatusOr<std::unique_ptr<CollectiveStream>> Create(CudaApi* api,
                                                                  int device,
                                                                  CudaStream compute);
  // Requires that all work on the stream is done, or that the device is lost.
  ~CollectiveStream();

  CudaApi& api() const { return *api_; }
  CudaStream stream() const { return stream_; }

  // Communicator::Mark and StartAt.
  uint64_t Mark();
  void StartAt(uint64_t mark) { start_ = mark; }

  // Makes the device current on this thread and lets the stream wait for the mark or, without one,
  // for all work that the compute stream has so far.
  absl::Status Begin();
  absl::Status End();
  // Whether the device has reached Begin, and End.
  absl::StatusOr<bool> Reached() { return api_->HasHappened(reached_); }
  absl::StatusOr<bool> Finished() { return api_->HasHappened(finished_); }

 private:
  static constexpr uint64_t kMarks = 64;
  CollectiveStream(CudaApi* api, int device, CudaStream compute)
      : api_(api), device_(device), compute_(compute) {}

  CudaApi* const api_;
  const int device_;
  const CudaStream compute_;
  CudaStream stream_ = nullptr;
  CudaEvent begin_ = nullptr, reached_ = nullptr, finished_ = nullptr;
  std::array<CudaEvent, kMarks> marks_{};  // mark m is event m % kMarks
  uint64_t next_mark_ = 1;
  uint64_t start_ = 0;
};

}  // namespace tandem
