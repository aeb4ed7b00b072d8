#include "common/device/cuda/cuda_device.h"

#include <fmt/format.h>

#include "common/device/cuda/cuda_offload_stream.h"
#include "common/device/cuda/cuda_region.h"
#include "common/device/cuda/cuda_upload_stream.h"
#include "common/device/cuda/pinned_region.h"

namespace tandem {

std::string CudaDevice::name() const {
  const CudaDeviceInfo& info = context_->info();
  return fmt::format("{} ({}, {:.0f} GiB)", info.name, info.uuid,
                     static_cast<double>(info.total_bytes) / (1 << 30));
}

DriverMemory CudaDevice::Memory() const {
  CudaApi& api = context_->api();
  // The driver answers for the thread's device, and any thread may ask.
  if (!api.UseDevice(context_->device()).ok()) return {};
  const absl::StatusOr<int64_t> free = api.FreeBytes();
  return free.ok() ? DriverMemory{context_->info().total_bytes, *free} : DriverMemory();
}

absl::Status CudaDevice::UseOnThisThread() { return context_->api().UseDevice(context_->device()); }

absl::StatusOr<std::unique_ptr<MemoryRegion>> CudaDevice::Reserve(const std::string& tag,
                                                                  int64_t bytes,
                                                                  Ledger* ledger) {
  return CudaRegion::Reserve(context_.get(), tag, bytes, ledger);
}

absl::StatusOr<std::unique_ptr<MemoryRegion>> CudaDevice::ReserveHost(const std::string& tag,
                                                                      int64_t bytes,
                                                                      Ledger* ledger) {
  return PinnedRegion::Reserve(context_.get(), tag, bytes, ledger);
}

absl::StatusOr<std::unique_ptr<OffloadStream>> CudaDevice::StreamThrough(
    std::vector<OffloadStream::Array> arrays,
    std::vector<OffloadStream::Window> windows,
    Ledger* ledger) {
  return CudaOffloadStream::Create(context_.get(), std::move(arrays), std::move(windows), ledger);
}

absl::StatusOr<std::unique_ptr<UploadStream>> CudaDevice::OpenUploads() {
  return CudaUploadStream::Create(context_.get());
}

void CudaDevice::Copy(void* to, const void* from, int64_t bytes) {
  context_->Copy(to, from, bytes);
}

void CudaDevice::Zero(void* to, int64_t bytes) { context_->Zero(to, bytes); }

}  // namespace tandem
