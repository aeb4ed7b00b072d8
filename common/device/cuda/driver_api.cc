#include "common/device/cuda/driver_api.h"

#include <cstring>

#include <cuda_runtime_api.h>

#include "common/base/status_macros.h"
#include "common/device/cuda/cuda_status.h"
#include "common/device/cuda/driver_memory.h"

// Devices and memory; driver_streams.cc has the streams, events and graphs.
namespace tandem {
namespace {

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(CudaIpcHandle));

std::string Version(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// A runtime works with drivers of its own major version, older or newer, and of later ones.
absl::Status CheckDriverVersion() {
  int driver = 0;
  TANDEM_RETURN_IF_ERROR(CheckRuntime(cudaDriverGetVersion(&driver), "cudaDriverGetVersion"));
  if (driver == 0) {
    return FailedPrecondition(
        "no CUDA driver: this machine has no libcuda.so.1; install NVIDIA's driver, start the "
        "container with its GPUs, or run with trainer.device=cpu");
  }
  if (driver / 1000 < CUDART_VERSION / 1000) {
    return FailedPrecondition(
        "the CUDA driver is too old: it knows CUDA {}, this program needs {}.0; install a newer "
        "one, or run with trainer.device=cpu",
        Version(driver), CUDART_VERSION / 1000);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> UuidOf(const DriverTable& driver, CUdevice device) {
  CUuuid uuid = {};
  TANDEM_RETURN_IF_ERROR(driver.Check(driver.DeviceGetUuid(&uuid, device), "cuDeviceGetUuid"));
  std::string digits;
  for (const char byte : uuid.bytes) {
    digits += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return digits;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaApi>> OpenCuda() {
  TANDEM_RETURN_IF_ERROR(CheckDriverVersion());
  int devices = 0;
  TANDEM_RETURN_IF_ERROR(
      Annotate(CheckRuntime(cudaGetDeviceCount(&devices), "cudaGetDeviceCount"),
               "the CUDA driver has no device for this process: look at nvidia-smi and "
               "CUDA_VISIBLE_DEVICES, or run with trainer.device=cpu"));
  TANDEM_ASSIGN_OR_RETURN(const DriverTable table, DriverTable::Load(LookUpInDriver));
  return std::make_unique<DriverApi>(std::make_unique<DriverMemory>(table));
}

DriverApi::DriverApi(std::unique_ptr<DriverMemory> memory) : memory_(std::move(memory)) {}
DriverApi::~DriverApi() = default;

absl::StatusOr<int> DriverApi::DeviceCount() {
  int devices = 0;
  TANDEM_RETURN_IF_ERROR(CheckRuntime(cudaGetDeviceCount(&devices), "cudaGetDeviceCount"));
  return devices;
}

absl::StatusOr<CudaDeviceInfo> DriverApi::Describe(int device) {
  cudaDeviceProp properties = {};
  TANDEM_RETURN_IF_ERROR(CheckRuntime(cudaGetDeviceProperties(&properties, device),
                                      fmt::format("cudaGetDeviceProperties of device {}", device)));
  const DriverTable& driver = memory_->table();
  CUdevice handle = 0;
  TANDEM_RETURN_IF_ERROR(driver.Check(driver.DeviceGet(&handle, device), "cuDeviceGet"));
  int virtual_memory = 0;
  TANDEM_RETURN_IF_ERROR(driver.Check(
      driver.DeviceGetAttribute(&virtual_memory,
                                CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, handle),
      "cuDeviceGetAttribute"));
  // The driver's: the runtime's is that of the whole GPU where a device is a part of one (MIG).
  TANDEM_ASSIGN_OR_RETURN(std::string uuid, UuidOf(driver, handle));
  return CudaDeviceInfo{
      .name = properties.name,
      .uuid = std::move(uuid),
      .compute_major = properties.major,
      .compute_minor = properties.minor,
      .multiprocessors = properties.multiProcessorCount,
      .total_bytes = static_cast<int64_t>(properties.totalGlobalMem),
      .shared_bytes_per_block = static_cast<int64_t>(properties.sharedMemPerBlockOptin),
      .virtual_memory = virtual_memory != 0,
      .legacy_ipc = properties.unifiedAddressing != 0 && properties.ipcEventSupported != 0 &&
                    properties.integrated == 0};
}

absl::Status DriverApi::UseDevice(int device) {
  return CheckRuntime(cudaSetDevice(device), fmt::format("cudaSetDevice({})", device));
}

absl::StatusOr<int64_t> DriverApi::FreeBytes() {
  size_t free = 0, total = 0;
  TANDEM_RETURN_IF_ERROR(CheckRuntime(cudaMemGetInfo(&free, &total), "cudaMemGetInfo"));
  return static_cast<int64_t>(free);
}

absl::StatusOr<int64_t> DriverApi::Granularity() { return memory_->Granularity(); }
absl::StatusOr<std::byte*> DriverApi::ReserveAddresses(int64_t bytes) {
  return memory_->ReserveAddresses(bytes);
}
absl::Status DriverApi::FreeAddresses(std::byte* address, int64_t bytes) {
  return memory_->FreeAddresses(address, bytes);
}
absl::StatusOr<CudaPages> DriverApi::CreatePages(int64_t bytes) {
  return memory_->CreatePages(bytes);
}
absl::Status DriverApi::ReleasePages(CudaPages pages) { return memory_->ReleasePages(pages); }
absl::Status DriverApi::MapPages(std::byte* address, int64_t bytes, CudaPages pages) {
  return memory_->MapPages(address, bytes, pages);
}
absl::Status DriverApi::UnmapPages(std::byte* address, int64_t bytes) {
  return memory_->UnmapPages(address, bytes);
}

absl::StatusOr<std::byte*> DriverApi::Malloc(int64_t bytes) {
  void* memory = nullptr;
  TANDEM_RETURN_IF_ERROR(CheckRuntime(cudaMalloc(&memory, static_cast<size_t>(bytes)),
                                      fmt::format("cudaMalloc of {} bytes", bytes)));
  return static_cast<std::byte*>(memory);
}
absl::Status DriverApi::Free(std::byte* address) {
  return CheckRuntime(cudaFree(address), "cudaFree");
}

absl::StatusOr<CudaIpcHandle> DriverApi::ExportMemory(std::byte* address) {
  cudaIpcMemHandle_t raw;
  TANDEM_RETURN_IF_ERROR(CheckRuntime(cudaIpcGetMemHandle(&raw, address), "cudaIpcGetMemHandle"));
  CudaIpcHandle handle;
  std::memcpy(handle.bytes.data(), &raw, sizeof(raw));
  return handle;
}
absl::StatusOr<std::byte*> DriverApi::OpenMemory(const CudaIpcHandle& handle) {
  cudaIpcMemHandle_t raw;
  std::memcpy(&raw, handle.bytes.data(), sizeof(raw));
  void* memory = nullptr;
  TANDEM_RETURN_IF_ERROR(CheckRuntime(
      cudaIpcOpenMemHandle(&memory, raw, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle"));
  return static_cast<std::byte*>(memory);
}
absl::Status DriverApi::CloseMemory(std::byte* address) {
  return CheckRuntime(cudaIpcCloseMemHandle(address), "cudaIpcCloseMemHandle");
}

absl::StatusOr<std::byte*> DriverApi::AllocateHost(int64_t bytes) {
  void* memory = nullptr;
  TANDEM_RETURN_IF_ERROR(
      CheckRuntime(cudaHostAlloc(&memory, static_cast<size_t>(bytes), cudaHostAllocPortable),
                   fmt::format("cudaHostAlloc of {} bytes", bytes)));
  return static_cast<std::byte*>(memory);
}
absl::Status DriverApi::FreeHost(std::byte* address) {
  return CheckRuntime(cudaFreeHost(address), "cudaFreeHost");
}
absl::Status DriverApi::RegisterHost(std::byte* address, int64_t bytes) {
  return CheckRuntime(
      cudaHostRegister(address, static_cast<size_t>(bytes), cudaHostRegisterPortable),
      fmt::format("cudaHostRegister of {} bytes", bytes));
}
absl::Status DriverApi::UnregisterHost(std::byte* address) {
  return CheckRuntime(cudaHostUnregister(address), "cudaHostUnregister");
}

}  // namespace tandem
