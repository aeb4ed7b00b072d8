#include "common/device/cuda/driver_memory.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "common/base/status.h"
#include "common/device/cuda/driver_api.h"

namespace tandem {
namespace {

CUdeviceptr PointerOf(const std::byte* address) { return reinterpret_cast<CUdeviceptr>(address); }

}  // namespace

absl::StatusOr<int> VirtualMemoryApi::Device() const {
  CUdevice device = 0;
  TANDEM_RETURN_IF_ERROR(table_.Check(table_.CtxGetDevice(&device), "cuCtxGetDevice"));
  return device;
}

absl::StatusOr<CUmemAllocationProp> VirtualMemoryApi::Properties() const {
  TANDEM_ASSIGN_OR_RETURN(const int device, Device());
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

absl::StatusOr<int64_t> VirtualMemoryApi::Granularity() const {
  TANDEM_ASSIGN_OR_RETURN(const CUmemAllocationProp properties, Properties());
  size_t bytes = 0;
  TANDEM_RETURN_IF_ERROR(table_.Check(
      table_.MemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
      "cuMemGetAllocationGranularity"));
  return static_cast<int64_t>(bytes);
}

absl::StatusOr<std::byte*> VirtualMemoryApi::ReserveAddresses(int64_t bytes) const {
  CUdeviceptr address = 0;
  TANDEM_RETURN_IF_ERROR(
      table_.Check(table_.MemAddressReserve(&address, static_cast<size_t>(bytes), 0, 0, 0),
                   fmt::format("cuMemAddressReserve of {} bytes", bytes)));
  return reinterpret_cast<std::byte*>(address);
}

absl::Status VirtualMemoryApi::FreeAddresses(std::byte* address, int64_t bytes) const {
  return table_.Check(table_.MemAddressFree(PointerOf(address), static_cast<size_t>(bytes)),
                      "cuMemAddressFree");
}

absl::StatusOr<CudaPages> VirtualMemoryApi::CreatePages(int64_t bytes) const {
  TANDEM_ASSIGN_OR_RETURN(const CUmemAllocationProp properties, Properties());
  CUmemGenericAllocationHandle pages = 0;
  TANDEM_RETURN_IF_ERROR(
      table_.Check(table_.MemCreate(&pages, static_cast<size_t>(bytes), &properties, 0),
                   fmt::format("cuMemCreate of {} bytes", bytes)));
  return pages;
}

absl::Status VirtualMemoryApi::ReleasePages(CudaPages pages) const {
  return table_.Check(table_.MemRelease(pages), "cuMemRelease");
}

absl::Status VirtualMemoryApi::MapPages(std::byte* address, int64_t bytes, CudaPages pages) const {
  TANDEM_ASSIGN_OR_RETURN(const int device, Device());
  const auto size = static_cast<size_t>(bytes);
  TANDEM_RETURN_IF_ERROR(
      table_.Check(table_.MemMap(PointerOf(address), size, 0, pages, 0),
                   fmt::format("cuMemMap of {} bytes at {}", bytes, fmt::ptr(address))));
  CUmemAccessDesc access = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const absl::Status accessible =
      table_.Check(table_.MemSetAccess(PointerOf(address), size, &access, 1),
                   fmt::format("cuMemSetAccess of {} bytes at {}", bytes, fmt::ptr(address)));
  if (accessible.ok()) return accessible;
  const absl::Status undone = UnmapPages(address, bytes);
  return undone.ok() ? accessible : Annotate(accessible, std::string(undone.message()) + ", after");
}

absl::Status VirtualMemoryApi::UnmapPages(std::byte* address, int64_t bytes) const {
  return table_.Check(table_.MemUnmap(PointerOf(address), static_cast<size_t>(bytes)),
                      fmt::format("cuMemUnmap of {} bytes at {}", bytes, fmt::ptr(address)));
}

namespace {

// Looks functions up one by one and collects the names of missing ones.
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
  // Both set null for an unknown number.
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
