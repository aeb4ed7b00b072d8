// CudaApi through the machine's CUDA runtime and driver.
#pragma once

#include <memory>
#include <string>

#include <absl/status/status.h>
#include <cuda_runtime_api.h>

#include "common/device/cuda/cuda_api.h"

namespace tandem {

class VirtualMemoryApi;

// Made by OpenCuda(). Allocations of at least 2 MiB from Malloc share no block with others.
// Exported memory should have a multiple of that size, since another process sees the whole block.
class DriverApi final : public CudaApi {
 public:
  explicit DriverApi(std::unique_ptr<VirtualMemoryApi> memory);
  ~DriverApi() override;

  absl::StatusOr<int> DeviceCount() override;
  absl::StatusOr<CudaDeviceInfo> Describe(int device) override;
  absl::Status UseDevice(int device) override;
  absl::StatusOr<int64_t> FreeBytes() override;

  absl::StatusOr<int64_t> Granularity() override;
  absl::StatusOr<std::byte*> ReserveAddresses(int64_t bytes) override;
  absl::Status FreeAddresses(std::byte* address, int64_t bytes) override;
  absl::StatusOr<CudaPages> CreatePages(int64_t bytes) override;
  absl::Status ReleasePages(CudaPages pages) override;
  absl::Status MapPages(std::byte* address, int64_t bytes, CudaPages pages) override;
  absl::Status UnmapPages(std::byte* address, int64_t bytes) override;

  absl::StatusOr<std::byte*> Malloc(int64_t bytes) override;
  absl::Status Free(std::byte* address) override;
  absl::StatusOr<CudaIpcHandle> ExportMemory(std::byte* address) override;
  absl::StatusOr<std::byte*> OpenMemory(const CudaIpcHandle& handle) override;
  absl::Status CloseMemory(std::byte* address) override;

  absl::StatusOr<std::byte*> AllocateHost(int64_t bytes) override;
  absl::Status FreeHost(std::byte* address) override;
  absl::Status RegisterHost(std::byte* address, int64_t bytes) override;
  absl::Status UnregisterHost(std::byte* address) override;

  absl::StatusOr<CudaStream> CreateStream(StreamPriority priority) override;
  absl::Status DestroyStream(CudaStream stream) override;
  absl::Status Synchronize(CudaStream stream) override;
  absl::Status Copy(void* to, const void* from, int64_t bytes, CudaStream stream) override;
  absl::Status Fill(void* to, unsigned char value, int64_t bytes, CudaStream stream) override;

  absl::StatusOr<CudaEvent> CreateEvent(bool shared) override;
  absl::StatusOr<CudaEvent> CreateMark() override;
  absl::Status DestroyEvent(CudaEvent event) override;
  absl::StatusOr<CudaIpcHandle> ExportEvent(CudaEvent event) override;
  absl::StatusOr<CudaEvent> OpenEvent(const CudaIpcHandle& handle) override;
  absl::Status Record(CudaEvent event, CudaStream stream) override;
  absl::Status WaitEvent(CudaStream stream, CudaEvent event) override;
  absl::StatusOr<bool> HasHappened(CudaEvent event) override;
  absl::Status Synchronize(CudaEvent event) override;
  absl::StatusOr<double> SecondsBetween(CudaEvent begin, CudaEvent end) override;

  absl::Status BeginCapture(CudaStream stream) override;
  absl::StatusOr<CudaGraph> EndCapture(CudaStream stream) override;
  absl::Status LaunchGraph(CudaGraph graph, CudaStream stream) override;
  absl::Status DestroyGraph(CudaGraph graph) override;

  absl::Status LastError() override;

 private:
  const std::unique_ptr<VirtualMemoryApi> memory_;
};

// CUDA's errors as statuses. The runtime and the driver number theirs alike. Needs CUDA's headers.
// The status of the error with number `code` (cudaError_t or CUresult, not 0): ResourceExhausted if
// memory or MPS clients are used up; FailedPrecondition if there is no device, or the driver does
// not fit or refuses the call; otherwise Internal, for bugs of this program, broken devices and
// numbers that CUDA 13 does not know. `call`, `name` and `text` make the message. The status is
// IsDeviceLost if, as CUDA's header says, the process must end.
absl::Status CudaErrorStatus(int code,
                             const std::string& call,
                             const std::string& name,
                             const std::string& text);

// OK for cudaSuccess. Clears the runtime's last error of this thread, so that the next launch does
// not report it again.
absl::Status CheckRuntime(cudaError_t result, const std::string& call);

}  // namespace tandem
