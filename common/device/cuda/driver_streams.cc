// DriverApi's streams, events and graphs.
#include <cstring>
#include <utility>

#include <cuda_runtime_api.h>

#include "common/base/status_macros.h"
#include "common/device/cuda/cuda_status.h"
#include "common/device/cuda/driver_api.h"
#include "common/device/cuda/driver_memory.h"

namespace tandem {
namespace {

// Of this thread, taken aside by HasHappened.
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
  // "Not ready" becomes the thread's last error and has to go again: what a launch left there
  // before must not go with it.
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

// Of this thread alone: others may allocate meanwhile.
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

}  // namespace tandem
