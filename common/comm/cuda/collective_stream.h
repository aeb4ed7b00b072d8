// The stream that a rank's collectives go through, ordered against the one that it computes on, and
// of a higher priority, since other ranks wait for its collectives.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/device/cuda/cuda_api.h"

namespace tandem {

// A collective: Begin, work on stream(), End, wait until Finished. Mark is for the thread that
// gives work to the compute stream, the rest for one thread at a time, which may be another.
class CollectiveStream {
 public:
  // `api` outlives the object; `compute` is a stream of `device`.
  static absl::StatusOr<std::unique_ptr<CollectiveStream>> Create(CudaApi* api,
                                                                  int device,
                                                                  CudaStream compute);
  // Everything on the stream is done, or its device is lost.
  ~CollectiveStream();

  CudaApi& api() const { return *api_; }
  CudaStream stream() const { return stream_; }

  // Communicator's.
  uint64_t Mark();
  void StartAt(uint64_t mark) { start_ = mark; }

  // Makes the device the thread's, and the stream wait for the mark, or for all that the compute
  // stream has so far.
  absl::Status Begin();
  absl::Status End();
  // Whether the device has got to Begin, and to End.
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
