// The functions of the CUDA driver without a counterpart in the CUDA runtime. They are looked up
// when a GPU is first used, because programs start on machines without a driver too. Needs CUDA's
// headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <cuda.h>
#include <cudaTypedefs.h>

#include "common/device/cuda/cuda_api.h"

namespace tandem {

// Returns a driver's function by its name without version suffix, with the signature that it had in
// CUDA `version` (1000 major + 10 minor); null if the driver has none.
using DriverLookup = std::function<void*(const char* name, int version)>;

// The version suffix of each type says which signature is used.
struct DriverTable {
  // FailedPrecondition names all functions that are missing.
  static absl::StatusOr<DriverTable> Load(const DriverLookup& lookup);

  PFN_cuGetErrorName_v6000 GetErrorName = nullptr;
  PFN_cuGetErrorString_v6000 GetErrorString = nullptr;
  PFN_cuDeviceGet_v2000 DeviceGet = nullptr;
  PFN_cuDeviceGetAttribute_v2000 DeviceGetAttribute = nullptr;
  PFN_cuDeviceGetUuid_v11040 DeviceGetUuid = nullptr;
  PFN_cuCtxGetDevice_v2000 CtxGetDevice = nullptr;
  PFN_cuMemGetAllocationGranularity_v10020 MemGetAllocationGranularity = nullptr;
  PFN_cuMemAddressReserve_v10020 MemAddressReserve = nullptr;
  PFN_cuMemAddressFree_v10020 MemAddressFree = nullptr;
  PFN_cuMemCreate_v10020 MemCreate = nullptr;
  PFN_cuMemRelease_v10020 MemRelease = nullptr;
  PFN_cuMemMap_v10020 MemMap = nullptr;
  PFN_cuMemUnmap_v10020 MemUnmap = nullptr;
  PFN_cuMemSetAccess_v10020 MemSetAccess = nullptr;

  // OK for CUDA_SUCCESS; otherwise names the call and the driver's error.
  absl::Status Check(CUresult result, const std::string& call) const;
};

// The machine's driver, through the runtime.
void* LookUpInDriver(const char* name, int version);

// Device memory whose addresses outlive its pages, through a table of the driver's virtual memory
// calls, which a test can fill with its own. Needs CUDA's headers. CudaApi documents the methods.
// Thread-safe; they act on the calling thread's current device.
class VirtualMemoryApi {
 public:
  explicit VirtualMemoryApi(DriverTable table) : table_(table) {}
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
