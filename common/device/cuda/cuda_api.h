// The interface of the CUDA backend to machines with GPUs: the driver and the runtime
// (driver_api.cc), or an emulator in host memory (tests/emulator), on which tests run the whole
// backend, kernels included. No CUDA header is needed to use it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/base/clock.h"
#include "common/base/progress.h"
#include "common/base/status.h"
#include "common/device/cuda/launch.h"

namespace tandem {

struct CudaDeviceInfo {
  std::string name;       // "NVIDIA H200"
  std::string uuid;       // 32 hex digits: the same whatever CUDA_VISIBLE_DEVICES says
  int compute_major = 0;  // 9 and 0 for sm_90
  int compute_minor = 0;
  int multiprocessors = 0;
  int64_t total_bytes = 0;
  int64_t shared_bytes_per_block = 0;  // the most that a kernel may ask for
  bool virtual_memory = false;         // addresses can be reserved without pages
  bool legacy_ipc = false;             // cudaMalloc memory may be opened by other processes
};

// A cudaIpcMemHandle_t or cudaIpcEventHandle_t, to be sent to another process.
struct CudaIpcHandle {
  std::array<std::byte, 64> bytes{};
  friend bool operator==(const CudaIpcHandle&, const CudaIpcHandle&) = default;
};

// Physical pages that are mapped at reserved addresses.
using CudaPages = uint64_t;

enum class StreamPriority { kNormal, kHighest };

// As thread-safe as CUDA is: every thread has a current device (UseDevice). Sizes in bytes. Errors,
// with the driver's name of them: ResourceExhausted (no memory), FailedPrecondition (no device, or
// the system refuses the call), Internal (all others). The error of a kernel is reported by a later
// call, and the device is lost then.
class CudaApi {
 public:
  virtual ~CudaApi() = default;

  virtual absl::StatusOr<int> DeviceCount() = 0;
  virtual absl::StatusOr<CudaDeviceInfo> Describe(int device) = 0;
  // Makes `device` current on the calling thread.
  virtual absl::Status UseDevice(int device) = 0;
  // Free bytes of the current device as its driver reports them, after the use of all processes.
  virtual absl::StatusOr<int64_t> FreeBytes() = 0;

  // Virtual memory. Sizes and addresses are multiples of Granularity() (2 MiB on today's GPUs).
  virtual absl::StatusOr<int64_t> Granularity() = 0;
  virtual absl::StatusOr<std::byte*> ReserveAddresses(int64_t bytes) = 0;
  virtual absl::Status FreeAddresses(std::byte* address, int64_t bytes) = 0;
  virtual absl::StatusOr<CudaPages> CreatePages(int64_t bytes) = 0;
  virtual absl::Status ReleasePages(CudaPages pages) = 0;
  // Makes the pages readable and writable by the current device.
  virtual absl::Status MapPages(std::byte* address, int64_t bytes, CudaPages pages) = 0;
  virtual absl::Status UnmapPages(std::byte* address, int64_t bytes) = 0;

  // Plain device memory, the only kind that legacy IPC can export.
  virtual absl::StatusOr<std::byte*> Malloc(int64_t bytes) = 0;
  virtual absl::Status Free(std::byte* address) = 0;
  virtual absl::StatusOr<CudaIpcHandle> ExportMemory(std::byte* address) = 0;
  virtual absl::StatusOr<std::byte*> OpenMemory(const CudaIpcHandle& handle) = 0;
  virtual absl::Status CloseMemory(std::byte* address) = 0;

  // Host memory that copy engines reach at full speed; RegisterHost pins existing memory.
  virtual absl::StatusOr<std::byte*> AllocateHost(int64_t bytes) = 0;
  virtual absl::Status FreeHost(std::byte* address) = 0;
  virtual absl::Status RegisterHost(std::byte* address, int64_t bytes) = 0;
  virtual absl::Status UnregisterHost(std::byte* address) = 0;

  // Streams do not wait for the legacy default stream. Work of the highest priority starts as soon
  // as a multiprocessor has room, before waiting work of other streams.
  virtual absl::StatusOr<CudaStream> CreateStream(
      StreamPriority priority = StreamPriority::kNormal) = 0;
  virtual absl::Status DestroyStream(CudaStream stream) = 0;
  virtual absl::Status Synchronize(CudaStream stream) = 0;
  // From and to device or host memory alike; host memory that is not pinned is copied at once.
  virtual absl::Status Copy(void* to, const void* from, int64_t bytes, CudaStream stream) = 0;
  virtual absl::Status Fill(void* to, unsigned char value, int64_t bytes, CudaStream stream) = 0;

  // `shared`: other processes may open it by its handle; it carries no time then.
  virtual absl::StatusOr<CudaEvent> CreateEvent(bool shared) = 0;
  // An event that only orders streams: it is cheaper, carries no time and cannot be shared.
  virtual absl::StatusOr<CudaEvent> CreateMark() = 0;
  virtual absl::Status DestroyEvent(CudaEvent event) = 0;
  virtual absl::StatusOr<CudaIpcHandle> ExportEvent(CudaEvent event) = 0;
  virtual absl::StatusOr<CudaEvent> OpenEvent(const CudaIpcHandle& handle) = 0;
  virtual absl::Status Record(CudaEvent event, CudaStream stream) = 0;
  virtual absl::Status WaitEvent(CudaStream stream, CudaEvent event) = 0;
  // Whether the work before the record is done; true before the first record.
  virtual absl::StatusOr<bool> HasHappened(CudaEvent event) = 0;
  virtual absl::Status Synchronize(CudaEvent event) = 0;
  // Between two events that are neither shared nor marks and have happened.
  virtual absl::StatusOr<double> SecondsBetween(CudaEvent begin, CudaEvent end) = 0;

  // Work that is enqueued on `stream` until EndCapture is recorded and not run; LaunchGraph runs
  // all of it.
  virtual absl::Status BeginCapture(CudaStream stream) = 0;
  virtual absl::StatusOr<CudaGraph> EndCapture(CudaStream stream) = 0;
  virtual absl::Status LaunchGraph(CudaGraph graph, CudaStream stream) = 0;
  virtual absl::Status DestroyGraph(CudaGraph graph) = 0;

  // Returns and clears the error that a kernel's launch left on this thread.
  virtual absl::Status LastError() = 0;
};

// The machine's driver. FailedPrecondition: this program was built without CUDA, there is no
// driver, or it is older than the program needs; the message says which.
absl::StatusOr<std::unique_ptr<CudaApi>> OpenCuda();

// Waits for a device without blocking the thread forever, as the device may never answer. Calls
// `done` (StatusOr<bool>) until it returns true (then OK) or an error (then that error). After
// about 100 calls it sleeps between 20 us and 1 ms before each further call, and calls `look`
// (Status) each time, whose error ends the wait as well. At `deadline` returns DeadlineExceeded,
// which the caller explains. An OutsideWait, as it has this limit.
template <typename Done, typename Look>
absl::Status PollUntil(Clock& clock, Instant deadline, const Done& done, const Look& look) {
  constexpr int kSpins = 100;
  const OutsideWait wait;
  for (int polls = 0;; ++polls) {
    TANDEM_ASSIGN_OR_RETURN(const bool ended, done());
    if (ended) return absl::OkStatus();
    if (polls < kSpins) continue;
    TANDEM_RETURN_IF_ERROR(look());
    if (clock.Now() >= deadline) return absl::DeadlineExceededError("the deadline has passed");
    clock.Sleep(absl::Microseconds(std::min(20 + (polls - kSpins), 1000)));
  }
}

}  // namespace tandem
