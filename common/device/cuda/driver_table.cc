#include "common/device/cuda/driver_table.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "common/base/status_macros.h"
#include "common/device/cuda/cuda_status.h"

namespace tandem {
namespace {

// Looks functions up one after the other and keeps the names of those that are not there.
class Loader {
 public:
  explicit Loader(const DriverLookup& lookup) : lookup_(lookup) {}

  template <typename Function>
  void Find(const char* name, int version, Function* function) {
    void* const found = lookup_(name, version);
    *function = reinterpret_cast<Function>(found);
    if (found != nullptr) return;
    missing_ += fmt::format("{}{} (CUDA {}.{})", missing_.empty() ? "" : ", ", name, version / 1000,
                            version % 1000 / 10);
  }
  const std::string& missing() const { return missing_; }

 private:
  const DriverLookup& lookup_;
  std::string missing_;
};

}  // namespace

absl::StatusOr<DriverTable> DriverTable::Load(const DriverLookup& lookup) {
  DriverTable table;
  Loader loader(lookup);
  loader.Find("cuGetErrorName", 6000, &table.GetErrorName);
  loader.Find("cuGetErrorString", 6000, &table.GetErrorString);
  loader.Find("cuDeviceGet", 2000, &table.DeviceGet);
  loader.Find("cuDeviceGetAttribute", 2000, &table.DeviceGetAttribute);
  loader.Find("cuDeviceGetUuid", 11040, &table.DeviceGetUuid);
  loader.Find("cuCtxGetDevice", 2000, &table.CtxGetDevice);
  loader.Find("cuMemGetAllocationGranularity", 10020, &table.MemGetAllocationGranularity);
  loader.Find("cuMemAddressReserve", 10020, &table.MemAddressReserve);
  loader.Find("cuMemAddressFree", 10020, &table.MemAddressFree);
  loader.Find("cuMemCreate", 10020, &table.MemCreate);
  loader.Find("cuMemRelease", 10020, &table.MemRelease);
  loader.Find("cuMemMap", 10020, &table.MemMap);
  loader.Find("cuMemUnmap", 10020, &table.MemUnmap);
  loader.Find("cuMemSetAccess", 10020, &table.MemSetAccess);
  if (!loader.missing().empty()) {
    return FailedPrecondition(
        "the CUDA driver lacks {}: install a newer one, or run with trainer.device=cpu",
        loader.missing());
  }
  return table;
}

absl::Status DriverTable::Check(CUresult result, const std::string& call) const {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  // Both set null for a number that they do not know.
  const char* name = nullptr;
  const char* text = nullptr;
  GetErrorName(result, &name);
  GetErrorString(result, &text);
  return CudaErrorStatus(static_cast<int>(result), call, name ? name : "an unknown error",
                         text ? text : "the driver has no words for it");
}

void* LookUpInDriver(const char* name, int version) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t result = cudaGetDriverEntryPointByVersion(
      name, &function, static_cast<unsigned>(version), cudaEnableLegacyStream, &found);
  return result == cudaSuccess && found == cudaDriverEntryPointSuccess ? function : nullptr;
}

}  // namespace tandem
