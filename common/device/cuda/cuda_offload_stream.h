// Offloaded arrays on their way through a GPU: the window that comes in and the one that goes home
// are on streams of their own beside the work's, ordered by events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/device/cuda/cuda_context.h"
#include "common/device/memory_region.h"
#include "common/device/offload_stream.h"

namespace tandem {

// For the thread of its context, whose stream the work is on. Two buffers on the device for each
// array, as large as the largest window, for the life of the stream. The host waits nowhere but in
// Finish and the destructor.
class CudaOffloadStream final : public OffloadStream {
 public:
  // Begins to copy windows in. No arrays: nothing happens. `context` and `ledger` (may be null)
  // outlive the stream. ResourceExhausted: no memory for the buffers.
  static absl::StatusOr<std::unique_ptr<OffloadStream>> Create(CudaContext* context,
                                                               std::vector<Array> arrays,
                                                               std::vector<Window> windows,
                                                               Ledger* ledger);
  ~CudaOffloadStream() override;
  CudaOffloadStream(const CudaOffloadStream&) = delete;
  CudaOffloadStream& operator=(const CudaOffloadStream&) = delete;

  absl::StatusOr<std::vector<std::byte*>> Open(size_t window) override;
  absl::Status Close(size_t window) override;
  absl::Status Finish() override;

 private:
  // The buffers that every other window uses, and how far they are.
  struct Half {
    CudaEvent filled = nullptr;   // on in_: a window has come in
    CudaEvent worked = nullptr;   // on the context's stream: the work on it is done
    CudaEvent emptied = nullptr;  // on out_: it has gone home, and the next may come in
  };
  CudaOffloadStream(CudaContext* context, std::vector<Array> arrays, std::vector<Window> windows)
      : context_(context), arrays_(std::move(arrays)), windows_(std::move(windows)) {}
  absl::Status Begin(Ledger* ledger);
  absl::Status Prepare(Ledger* ledger);
  absl::Status CopyIn(size_t window);
  std::byte* Buffer(size_t array, size_t window) const;

  CudaContext* const context_;
  const std::vector<Array> arrays_;
  const std::vector<Window> windows_;
  std::vector<std::unique_ptr<MemoryRegion>> buffers_;  // two of each array, one after the other
  CudaStream in_ = nullptr, out_ = nullptr;
  Half halves_[2];
  size_t opened_ = 0, closed_ = 0;  // windows
};

}  // namespace tandem
