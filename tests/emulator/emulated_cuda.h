// A GPU in host memory, for tests: CudaApi whose streams do their work at once, or late. Memory
// that is Malloc'ed may be opened by other processes, as events may. Calls are counted and can be
// made to fail; the memory size of the device can be set.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/device/cuda/cuda_api.h"
#include "tests/emulator/late_events.h"

namespace tandem::emulator {

struct EmulatedCudaOptions {
  int devices = 1;
  int first_device = 0;  // what device 0 is elsewhere, as CUDA_VISIBLE_DEVICES shifts them
  int64_t total_bytes = int64_t{8} << 30;  // of each device, shared by the users of one object
  int compute_major = 8, compute_minor = 0;
  bool virtual_memory = true;
  bool legacy_ipc = true;
  // Bit i: the i-th stream that is created does its work only when somebody waits for it, instead
  // of at once. Over all sets of its streams a test sees where one should have waited for another.
  // What precedes a record of another process's event is done at once.
  uint64_t late_streams = 0;
  // Unless this says that such an event happens on a late stream when somebody asks
  // (late_events.h). Not where a process is stopped meanwhile: a GPU would go on, and this one does
  // not.
  bool late_events = false;
  // Who this is to others that open its memory and events: 0, the process that it runs in. What a
  // process exports it cannot open itself, so that a test which plays two processes in one gives
  // one of them another number.
  int32_t process = 0;
};

// As TANDEM_EMULATED_LATE says, whose number is late_streams ("0x" and "0" as in C); without the
// variable all are prompt.
EmulatedCudaOptions OptionsFromEnvironment();

// Thread-safe. All devices are one memory. Refused as a driver does: allocations, frees, queries of
// events and copies of pageable memory while the thread captures a stream, which makes the capture
// void; kernels on a stream of another device than the thread's (LastError tells); and, what a
// driver would do on device 0, calls of a thread that chose no device where another than 0 is used.
// Opened memory that its owner has freed cannot be touched: by a copy, the device is lost; by a
// kernel, the process ends.
class EmulatedCuda final : public CudaApi {
 public:
  explicit EmulatedCuda(EmulatedCudaOptions options = {});
  ~EmulatedCuda() override;

  // The next call of the method `name` after `skipped` further ones fails with `status`, once; with
  // one that IsDeviceLost so does every call from then on.
  void FailCall(const std::string& name, absl::Status status, int skipped = 0);
  // Every call fails from now on, as after a kernel that wrote where nothing is.
  void LoseDevice();
  // Whether what is recorded has not happened yet: a device that hangs. Of shared events it is what
  // is recorded from now on, as every process sees it.
  void HoldEvents(bool held);
  // Methods called so far, in order; those that change nothing (Describe, FreeBytes, ...) are left
  // out, but for HasHappened of shared events.
  std::vector<std::string> calls() const;
  void ForgetCalls();
  // Streams of the highest priority that were created.
  int urgent_streams() const;
  // Bytes with pages, mapped or not; and the most that they were since the last ResetPeak.
  int64_t used_bytes() const;
  int64_t peak_bytes() const;
  void ResetPeak();
  // Of the pages that are released from now on, the first `bytes` stay in use, as if another
  // process had opened them. What was held until now is free.
  void HoldReleasedPages(int64_t bytes);

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
  absl::StatusOr<CudaStream> CreateStream(
      StreamPriority priority = StreamPriority::kNormal) override;
  absl::Status DestroyStream(CudaStream stream) override;
  absl::Status Synchronize(CudaStream stream) override;
  absl::Status Copy(void* to, const void* from, int64_t bytes, CudaStream stream) override;
  absl::Status Fill(void* to, unsigned char value, int64_t bytes, CudaStream stream) override;
  absl::StatusOr<CudaEvent> CreateEvent(bool shared) override;
  absl::StatusOr<CudaEvent> CreateMark() override { return CreateEvent(false); }
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
  struct Header;
  struct Mapping {  // shared memory that this process sees
    int fd = -1;
    int64_t bytes = 0;
    bool owner = false;
    Header* header = nullptr;
    bool gone = false;  // another's, who has freed it
  };
  struct Failure {
    std::string call;
    absl::Status status;
    int skipped = 0;
  };
  // Counts a call; its injected failure.
  absl::Status Called(const char* name);
  absl::Status Injected(const char* name);
  absl::Status TakeBytes(int64_t bytes);
  absl::StatusOr<std::byte*> MapShared(int fd, int64_t bytes, bool owner);
  absl::StatusOr<std::byte*> CreateShared(int64_t bytes);
  absl::StatusOr<CudaIpcHandle> HandleOf(std::byte* address) const;
  absl::StatusOr<std::byte*> Open(const CudaIpcHandle& handle);
  static void Close(std::byte* address, const Mapping& mapping);
  absl::Status Unmap(std::byte* address, bool owner);
  int32_t process() const;
  // Every call has that status from now on.
  void Lose(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_mutex_);
  // Makes what others have freed fault.
  void ProtectFreed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_mutex_);
  absl::Status CheckTouched(const void* address);
  absl::Status CheckThread(const char* name) const;
  absl::Status NotWhileCapturing(const char* call) const;
  void FinishStreams();
  bool IsShared(CudaEvent event) const;
  void RecordShared(CudaEvent event, CudaStream stream);
  // Host memory that is not pinned.
  bool IsPageable(const void* address) const;

  const EmulatedCudaOptions options_;
  const uint64_t driver_;  // current_device.h
  mutable Mutex state_mutex_;
  absl::Status lost_ ABSL_GUARDED_BY(state_mutex_);                // since the device is
  bool chose_other_device_ ABSL_GUARDED_BY(state_mutex_) = false;  // than device 0, by any thread
  int64_t used_ ABSL_GUARDED_BY(state_mutex_) = 0;
  int64_t peak_ ABSL_GUARDED_BY(state_mutex_) = 0;
  int64_t to_hold_ ABSL_GUARDED_BY(state_mutex_) = 0;  // of pages that will be released
  int64_t held_ ABSL_GUARDED_BY(state_mutex_) = 0;  // of pages that were released and stay in use
  bool events_held_ ABSL_GUARDED_BY(state_mutex_) = false;
  std::set<CudaEvent> shared_events_ ABSL_GUARDED_BY(state_mutex_);
  std::vector<std::pair<CudaEvent, int64_t>> held_records_
      ABSL_GUARDED_BY(state_mutex_);  // of shared events, by number
  std::vector<std::string> calls_ ABSL_GUARDED_BY(state_mutex_);
  std::vector<Failure> failures_ ABSL_GUARDED_BY(state_mutex_);
  std::map<CudaPages, int64_t> pages_ ABSL_GUARDED_BY(state_mutex_);      // bytes
  std::map<std::byte*, int64_t> reserved_ ABSL_GUARDED_BY(state_mutex_);  // bytes
  std::map<std::byte*, std::pair<int64_t, CudaPages>> mapped_
      ABSL_GUARDED_BY(state_mutex_);  // bytes and pages
  std::map<std::byte*, Mapping> shared_ ABSL_GUARDED_BY(state_mutex_);
  std::map<std::byte*, int64_t> host_ ABSL_GUARDED_BY(state_mutex_);  // bytes, as in the next one
  std::map<std::byte*, int64_t> registered_ ABSL_GUARDED_BY(state_mutex_);
  CudaPages next_pages_ ABSL_GUARDED_BY(state_mutex_) = 1;
  int urgent_streams_ ABSL_GUARDED_BY(state_mutex_) = 0;
  std::vector<CudaStream> streams_
      ABSL_GUARDED_BY(state_mutex_);  // all that were created; null: destroyed
  // Waits for events of others end then.
  const std::shared_ptr<std::atomic<bool>> closing_ = std::make_shared<std::atomic<bool>>(false);
  LateEvents late_events_;
};

}  // namespace tandem::emulator
