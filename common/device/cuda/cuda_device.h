// Streams offloaded arrays through a GPU: windows are copied in and out on streams of their own,
// ordered against the work by events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/device/cuda/cuda_context.h"
#include "common/device/cuda/cuda_regions.h"
#include "common/device/device.h"

namespace tandem {

// For the thread of its context, on whose stream the work runs. It has two device buffers for each
// array, as large as the largest window, for the life of the stream. The host waits only in Finish
// and the destructor.
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
  // The buffers of every other window, and the events that track them.
  struct Half {
    CudaEvent filled = nullptr;  // on in_: a window has come in
    CudaEvent worked = nullptr;  // on the context's stream: the work on the window is done
    CudaEvent emptied =
        nullptr;  // on out_: the window is copied home, and the next one may come in
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
  std::vector<std::unique_ptr<MemoryRegion>> buffers_;  // two for each array, adjacent
  CudaStream in_ = nullptr, out_ = nullptr;
  Half halves_[2];
  size_t opened_ = 0, closed_ = 0;  // windows
};

// Uploads to a GPU on a stream of their own, ordered against the work by events. For the thread of
// its context, on whose stream the work runs. The host waits only in the destructor.
class CudaUploadStream final : public UploadStream {
 public:
  // `context` outlives the stream.
  static absl::StatusOr<std::unique_ptr<UploadStream>> Create(CudaContext* context);
  ~CudaUploadStream() override;
  CudaUploadStream(const CudaUploadStream&) = delete;
  CudaUploadStream& operator=(const CudaUploadStream&) = delete;

  absl::Status Begin() override;
  absl::Status Copy(void* to, const void* from, int64_t bytes) override;
  absl::Status Join() override;

 private:
  explicit CudaUploadStream(CudaContext* context) : context_(context) {}
  absl::Status Prepare();

  CudaContext* const context_;
  CudaStream stream_ = nullptr;
  CudaEvent begun_ = nullptr;   // on the context's stream: the work before the copies is done
  CudaEvent copied_ = nullptr;  // on stream_
};

// Device for one GPU.
class CudaDevice final : public Device {
 public:
  explicit CudaDevice(std::unique_ptr<CudaContext> context)
      : context_(std::move(context)), shareable_(context_.get()) {}

  CudaContext& context() { return *context_; }

  bool is_host() const override { return false; }
  std::string name() const override;
  DriverMemory Memory() const override;
  absl::Status UseOnThisThread() override;
  absl::StatusOr<std::unique_ptr<MemoryRegion>> Reserve(const std::string& tag,
                                                        int64_t bytes,
                                                        Ledger* ledger) override;
  absl::StatusOr<std::unique_ptr<ShareableMemory>> ReserveShareable(const std::string& tag,
                                                                    int64_t bytes,
                                                                    Ledger* ledger) override {
    return shareable_.Take(tag, bytes, ledger);
  }
  absl::StatusOr<std::unique_ptr<MemoryRegion>> ReserveHost(const std::string& tag,
                                                            int64_t bytes,
                                                            Ledger* ledger) override;
  absl::StatusOr<std::unique_ptr<OffloadStream>> StreamThrough(
      std::vector<OffloadStream::Array> arrays,
      std::vector<OffloadStream::Window> windows,
      Ledger* ledger) override;
  absl::StatusOr<std::unique_ptr<UploadStream>> OpenUploads() override;
  void Copy(void* to, const void* from, int64_t bytes) override;
  void Zero(void* to, int64_t bytes) override;
  absl::Status Synchronize() override { return context_->Synchronize(); }

 private:
  const std::unique_ptr<CudaContext> context_;
  ShareablePool shareable_;
};

}  // namespace tandem
