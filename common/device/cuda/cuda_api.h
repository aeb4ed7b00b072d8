// What the CUDA backend asks of a machine with GPUs, as one seam: the driver and the runtime behind
// it (driver_api.cc), or an emulator in host memory (emulator/), on which the tests run the whole
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

// Thread-safe as CUDA is: a device is current per thread (UseDevice). Sizes in bytes. Errors:
// ResourceExhausted (no memory), FailedPrecondition (no device, or the system refuses the call),
// Internal (everything else), with the driver's name of the error; an error of a kernel shows at
// a later call, and the device is lost then.
class CudaApi {
 public:
  virtual ~CudaApi() = default;

  virtual absl::StatusOr<int> DeviceCount() = 0;
  virtual absl::StatusOr<CudaDeviceInfo> Describe(int device) = 0;
  // Makes `device` the calling thread's.
  virtual absl::Status UseDevice(int device) = 0;
  // Of the current device, as the driver says: other processes' use is in it.
  virtual absl::StatusOr<int64_t> FreeBytes() = 0;

  // Virtual memory. Sizes and addresses are multiples of Granularity() (2 MiB on today's GPUs).
  virtual absl::StatusOr<int64_t> Granularity() = 0;
  virtual absl::StatusOr<std::byte*> ReserveAddresses(int64_t bytes) = 0;
  virtual absl::Status FreeAddresses(std::byte* address, int64_t bytes) = 0;
  virtual absl::StatusOr<CudaPages> CreatePages(int64_t bytes) = 0;
  virtual absl::Status ReleasePages(CudaPages pages) = 0;
  // Readable and writable by the current device.
  virtual absl::Status MapPages(std::byte* address, int64_t bytes, CudaPages pages) = 0;
  virtual absl::Status UnmapPages(std::byte* address, int64_t bytes) = 0;

  // Plain device memory, the only kind that legacy IPC passes on.
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
  // as a multiprocessor has room, before other streams' that waits already.
  virtual absl::StatusOr<CudaStream> CreateStream(
      StreamPriority priority = StreamPriority::kNormal) = 0;
  virtual absl::Status DestroyStream(CudaStream stream) = 0;
  virtual absl::Status Synchronize(CudaStream stream) = 0;
  // From and to device or host memory alike; host memory that is not pinned is copied at once.
  virtual absl::Status Copy(void* to, const void* from, int64_t bytes, CudaStream stream) = 0;
  virtual absl::Status Fill(void* to, unsigned char value, int64_t bytes, CudaStream stream) = 0;

  // `shared`: other processes may open it by its handle; it carries no time then.
  virtual absl::StatusOr<CudaEvent> CreateEvent(bool shared) = 0;
  // One that only orders streams, which is cheaper: it carries no time and is not shared.
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

  // Work that goes to `stream` until EndCapture is kept, not done; LaunchGraph does all of it.
  virtual absl::Status BeginCapture(CudaStream stream) = 0;
  virtual absl::StatusOr<CudaGraph> EndCapture(CudaStream stream) = 0;
  virtual absl::Status LaunchGraph(CudaGraph graph, CudaStream stream) = 0;
  virtual absl::Status DestroyGraph(CudaGraph graph) = 0;

  // What a kernel's launch left behind on this thread, and forgets it.
  virtual absl::Status LastError() = 0;
};

// The machine's driver. FailedPrecondition: this program was built without CUDA, there is no
// driver, or it is older than the program needs; the message says which.
absl::StatusOr<std::unique_ptr<CudaApi>> OpenCuda();

// Waits for a device without blocking the thread for good, since the device may never answer.

// Asks `done` (StatusOr<bool>) until it says yes: OK, or its error. After some 100 times it calls
// `look` (Status), whose error ends the wait too, and sleeps between 20 us and 1 ms before every
// further one. DeadlineExceeded, to be told by the caller, at `deadline`.
template <typename Done, typename Look>
absl::Status PollUntil(Clock& clock, Instant deadline, const Done& done, const Look& look) {
  constexpr int kSpins = 100;
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
