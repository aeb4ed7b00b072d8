// Device over one GPU.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/device/cuda/cuda_context.h"
#include "common/device/cuda/shareable_pool.h"
#include "common/device/device.h"

namespace tandem {

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
