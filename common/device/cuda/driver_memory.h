// Device memory whose addresses outlive its pages: the driver's virtual memory calls, over a table
// of its functions (which a test can fill with its own). Needs CUDA's headers.
#pragma once

#include <cstddef>
#include <cstdint>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/device/cuda/cuda_api.h"
#include "common/device/cuda/driver_table.h"

namespace tandem {

// CudaApi says what the methods promise. Thread-safe; of the calling thread's device.
class DriverMemory {
 public:
  explicit DriverMemory(DriverTable table) : table_(table) {}
  const DriverTable& table() const { return table_; }

  absl::StatusOr<int64_t> Granularity() const;
  absl::StatusOr<std::byte*> ReserveAddresses(int64_t bytes) const;
  absl::Status FreeAddresses(std::byte* address, int64_t bytes) const;
  absl::StatusOr<CudaPages> CreatePages(int64_t bytes) const;
  absl::Status ReleasePages(CudaPages pages) const;
  absl::Status MapPages(std::byte* address, int64_t bytes, CudaPages pages) const;
  absl::Status UnmapPages(std::byte* address, int64_t bytes) const;

 private:
  absl::StatusOr<int> Device() const;
  absl::StatusOr<CUmemAllocationProp> Properties() const;

  const DriverTable table_;
};

}  // namespace tandem
