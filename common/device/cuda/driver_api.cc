#include "common/device/cuda/driver_api.h"

#include <cstring>
#include <utility>

#include <cuda_runtime_api.h>

#include "common/base/status.h"
#include "common/device/cuda/driver_memory.h"

// First devices and memory; streams, events and graphs follow below.

namespace tandem {
namespace {

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(CudaIpcHandle));

std::string Version(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// A CUDA runtime works with every driver of its own major version and of later ones.
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
  return std::make_unique<DriverApi>(std::make_unique<VirtualMemoryApi>(table));
}

DriverApi::DriverApi(std::unique_ptr<VirtualMemoryApi> memory) : memory_(std::move(memory)) {}
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
  // From the driver, as the runtime returns the UUID of the whole GPU if the device is a part of
  // one (MIG).
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

// DriverApi's streams, events and graphs.

namespace {

// The launch error of this thread that HasHappened has put aside.
thread_local cudaError_t launch_error = cudaSuccess;

absl::StatusOr<CudaEvent> CreateEventWith(unsigned flags) {
  CudaEvent event = nullptr;
  TANDEM_RETURN_IF_ERROR(
      CheckRuntime(cudaEventCreateWithFlags(&event, flags), "cudaEventCreateWithFlags"));
  return event;
}

}  // namespace

static_assert(sizeof(cudaIpcEventHandle_t) == sizeof(CudaIpcHandle));

absl::StatusOr<CudaStream> DriverApi::CreateStream(StreamPriority priority) {
  int lowest = 0, highest = 0;  // the smaller the number, the higher the priority; 0 is normal
  TANDEM_RETURN_IF_ERROR(CheckRuntime(cudaDeviceGetStreamPriorityRange(&lowest, &highest),
                                      "cudaDeviceGetStreamPriorityRange"));
  CudaStream stream = nullptr;
  TANDEM_RETURN_IF_ERROR(
      CheckRuntime(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                                priority == StreamPriority::kHighest ? highest : 0),
                   "cudaStreamCreateWithPriority"));
  return stream;
}
absl::Status DriverApi::DestroyStream(CudaStream stream) {
  return CheckRuntime(cudaStreamDestroy(stream), "cudaStreamDestroy");
}
absl::Status DriverApi::Synchronize(CudaStream stream) {
  return CheckRuntime(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

absl::Status DriverApi::Copy(void* to, const void* from, int64_t bytes, CudaStream stream) {
  return CheckRuntime(
      cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream),
      fmt::format("cudaMemcpyAsync of {} bytes", bytes));
}
absl::Status DriverApi::Fill(void* to, unsigned char value, int64_t bytes, CudaStream stream) {
  return CheckRuntime(cudaMemsetAsync(to, value, static_cast<size_t>(bytes), stream),
                      fmt::format("cudaMemsetAsync of {} bytes", bytes));
}

absl::StatusOr<CudaEvent> DriverApi::CreateEvent(bool shared) {
  // An event that other processes see cannot carry time.
  return CreateEventWith(shared ? cudaEventDisableTiming | cudaEventInterprocess
                                : cudaEventDefault);
}
absl::StatusOr<CudaEvent> DriverApi::CreateMark() {
  return CreateEventWith(cudaEventDisableTiming);
}
absl::Status DriverApi::DestroyEvent(CudaEvent event) {
  return CheckRuntime(cudaEventDestroy(event), "cudaEventDestroy");
}
absl::StatusOr<CudaIpcHandle> DriverApi::ExportEvent(CudaEvent event) {
  cudaIpcEventHandle_t raw;
  TANDEM_RETURN_IF_ERROR(CheckRuntime(cudaIpcGetEventHandle(&raw, event), "cudaIpcGetEventHandle"));
  CudaIpcHandle handle;
  std::memcpy(handle.bytes.data(), &raw, sizeof(raw));
  return handle;
}
absl::StatusOr<CudaEvent> DriverApi::OpenEvent(const CudaIpcHandle& handle) {
  cudaIpcEventHandle_t raw;
  std::memcpy(&raw, handle.bytes.data(), sizeof(raw));
  CudaEvent event = nullptr;
  TANDEM_RETURN_IF_ERROR(
      CheckRuntime(cudaIpcOpenEventHandle(&event, raw), "cudaIpcOpenEventHandle"));
  return event;
}
absl::Status DriverApi::Record(CudaEvent event, CudaStream stream) {
  return CheckRuntime(cudaEventRecord(event, stream), "cudaEventRecord");
}
absl::Status DriverApi::WaitEvent(CudaStream stream, CudaEvent event) {
  return CheckRuntime(cudaStreamWaitEvent(stream, event, cudaEventWaitDefault),
                      "cudaStreamWaitEvent");
}
absl::StatusOr<bool> DriverApi::HasHappened(CudaEvent event) {
  // "Not ready" sets the thread's last error and must be cleared, but not a launch error that was
  // there before.
  if (launch_error == cudaSuccess) launch_error = cudaGetLastError();
  const cudaError_t result = cudaEventQuery(event);
  if (result == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  TANDEM_RETURN_IF_ERROR(CheckRuntime(result, "cudaEventQuery"));
  return true;
}
absl::Status DriverApi::Synchronize(CudaEvent event) {
  return CheckRuntime(cudaEventSynchronize(event), "cudaEventSynchronize");
}
absl::StatusOr<double> DriverApi::SecondsBetween(CudaEvent begin, CudaEvent end) {
  float milliseconds = 0;
  TANDEM_RETURN_IF_ERROR(
      CheckRuntime(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime"));
  return static_cast<double>(milliseconds) / 1000;
}

// Captures this thread only: other threads may allocate meanwhile.
absl::Status DriverApi::BeginCapture(CudaStream stream) {
  return CheckRuntime(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                      "cudaStreamBeginCapture");
}
absl::StatusOr<CudaGraph> DriverApi::EndCapture(CudaStream stream) {
  cudaGraph_t captured = nullptr;
  TANDEM_RETURN_IF_ERROR(
      CheckRuntime(cudaStreamEndCapture(stream, &captured), "cudaStreamEndCapture"));
  CudaGraph graph = nullptr;
  const cudaError_t result = cudaGraphInstantiate(&graph, captured, 0);
  const absl::Status made = CheckRuntime(result, "cudaGraphInstantiate");
  const absl::Status destroyed = CheckRuntime(cudaGraphDestroy(captured), "cudaGraphDestroy");
  TANDEM_RETURN_IF_ERROR(made);
  TANDEM_RETURN_IF_ERROR(destroyed);
  return graph;
}
absl::Status DriverApi::LaunchGraph(CudaGraph graph, CudaStream stream) {
  return CheckRuntime(cudaGraphLaunch(graph, stream), "cudaGraphLaunch");
}
absl::Status DriverApi::DestroyGraph(CudaGraph graph) {
  return CheckRuntime(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy");
}

absl::Status DriverApi::LastError() {
  const cudaError_t last = cudaGetLastError();
  const cudaError_t first = std::exchange(launch_error, cudaSuccess);
  return CheckRuntime(first == cudaSuccess ? last : first, "a kernel's launch");
}

namespace {

absl::StatusCode CodeOf(int code) {
  switch (static_cast<cudaError_t>(code)) {
    case cudaErrorMemoryAllocation:
    case cudaErrorMpsMaxClientsReached:
    case cudaErrorMpsMaxConnectionsReached:
      return absl::StatusCode::kResourceExhausted;
    // No device, or none for this process.
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorDeviceNotLicensed:
    case cudaErrorDeviceAlreadyInUse:
    case cudaErrorSoftwareValidityNotEstablished:
    // A driver that is missing, does not start, or does not fit this program.
    case cudaErrorInitializationError:
    case cudaErrorStubLibrary:
    case cudaErrorInsufficientDriver:
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorSharedObjectInitFailed:
    // A device for which this program has no kernels.
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorJitCompilerNotFound:
    case cudaErrorJitCompilationDisabled:
    // Calls that the system or the device does not allow this process.
    case cudaErrorNotPermitted:
    case cudaErrorNotSupported:
    case cudaErrorOperatingSystem:
    case cudaErrorMapBufferObjectFailed:  // what opening another process's memory comes to
    case cudaErrorPeerAccessUnsupported:
    case cudaErrorTooManyPeers:
    case cudaErrorMpsConnectionFailed:
    case cudaErrorMpsServerNotReady:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kInternal;
  }
}

// "This leaves the process in an inconsistent state and any further CUDA work will return the same
// error", and hardware that lost what it held.
bool LosesDevice(int code) {
  switch (static_cast<cudaError_t>(code)) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
      return true;
    default:
      return false;
  }
}

}  // namespace

absl::Status CudaErrorStatus(int code,
                             const std::string& call,
                             const std::string& name,
                             const std::string& text) {
  absl::Status status = MakeStatus(CodeOf(code), "{}: {} ({}): {}", call, name, code, text);
  return LosesDevice(code) ? WithDeviceLost(std::move(status)) : status;
}

absl::Status CheckRuntime(cudaError_t result, const std::string& call) {
  if (result == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();
  return CudaErrorStatus(static_cast<int>(result), call, cudaGetErrorName(result),
                         cudaGetErrorString(result));
}

}  // namespace tandem
