// EmulatedCuda's streams, events and graphs.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "common/base/status.h"
#include "tests/emulator/capture.h"
#include "tests/emulator/current_device.h"
#include "tests/emulator/emulated_cuda.h"
#include "tests/emulator/emulator.h"
#include "tests/emulator/late_streams.h"

namespace tandem::emulator {
namespace {

constexpr int64_t kEventBytes = 4096;

SharedEvent& StateOf(CudaEvent event) { return *reinterpret_cast<SharedEvent*>(event); }

// As a driver does, for as long as it takes, or until its user is gone.
void WaitShared(CudaEvent event, int64_t number, const std::atomic<bool>& closing) {
  Want(StateOf(event), number);
  while (StateOf(event).happened < number && !closing) std::this_thread::yield();
}

}  // namespace

absl::StatusOr<CudaStream> EmulatedCuda::CreateStream(StreamPriority priority) {
  TANDEM_RETURN_IF_ERROR(Called("CreateStream"));
  const auto stream = reinterpret_cast<CudaStream>(new char());
  const MutexLock lock(state_mutex_);
  urgent_streams_ += priority == StreamPriority::kHighest ? 1 : 0;
  BindStream(stream, driver_, CurrentDevice(driver_),
             SharedLimitOf(options_.compute_major, options_.compute_minor));
  const size_t index = streams_.size();
  if (index < 64 && (options_.late_streams >> index & 1) != 0) OpenLate(stream);
  streams_.push_back(stream);
  return stream;
}
absl::Status EmulatedCuda::DestroyStream(CudaStream stream) {
  DoLate(stream);
  late_events_.Settle();
  late_events_.Close(stream);
  CloseLate(stream);
  UnbindStream(stream);
  delete reinterpret_cast<char*>(stream);
  {
    const MutexLock lock(state_mutex_);
    std::replace(streams_.begin(), streams_.end(), stream, CudaStream());
  }
  return Called("DestroyStream");
}
void EmulatedCuda::FinishStreams() {
  std::vector<CudaStream> streams;
  {
    const MutexLock lock(state_mutex_);
    streams = streams_;
  }
  for (const CudaStream stream : streams) DoLate(stream);
  late_events_.Settle();
}
absl::Status EmulatedCuda::Synchronize(CudaStream stream) {
  TANDEM_RETURN_IF_ERROR(Called("Synchronize"));
  if (IsCaptured(stream)) return NotWhileCapturing("cudaStreamSynchronize");
  DoLate(stream);
  late_events_.Settle();
  return absl::OkStatus();
}

absl::Status EmulatedCuda::Copy(void* to, const void* from, int64_t bytes, CudaStream stream) {
  TANDEM_RETURN_IF_ERROR(Called("Copy"));
  TANDEM_RETURN_IF_ERROR(CheckCapture(stream));
  if (bytes == 0) return absl::OkStatus();  // from or to nowhere, perhaps
  if (IsCaptured(stream) && (IsPageable(from) || IsPageable(to))) {
    return NotWhileCapturing("a copy to or from pageable memory");
  }
  TANDEM_RETURN_IF_ERROR(CheckTouched(from));
  TANDEM_RETURN_IF_ERROR(CheckTouched(to));
  const auto size = static_cast<size_t>(bytes);
  // A captured copy reads its host memory when its graph is launched.
  const bool late = options_.late_streams != 0 && !IsCaptured(stream);
  if (late && IsPageable(from)) {
    const auto* const begin = static_cast<const std::byte*>(from);
    Submit(stream, [to, size, copy = std::vector<std::byte>(begin, begin + bytes)] {
      std::memcpy(to, copy.data(), size);
    });
  } else {
    Submit(stream, [=] { std::memmove(to, from, size); });
  }
  if (late && IsPageable(to)) DoLate(stream);
  return absl::OkStatus();
}

absl::Status EmulatedCuda::Fill(void* to, unsigned char value, int64_t bytes, CudaStream stream) {
  TANDEM_RETURN_IF_ERROR(Called("Fill"));
  TANDEM_RETURN_IF_ERROR(CheckCapture(stream));
  TANDEM_RETURN_IF_ERROR(CheckTouched(to));
  Submit(stream, [=] { std::memset(to, value, static_cast<size_t>(bytes)); });
  return absl::OkStatus();
}

// An event is memory like any other, and has always happened where streams do their work at once.
absl::StatusOr<CudaEvent> EmulatedCuda::CreateEvent(bool shared) {
  TANDEM_RETURN_IF_ERROR(Called("CreateEvent"));
  TANDEM_ASSIGN_OR_RETURN(std::byte* const memory, CreateShared(kEventBytes));
  const auto event = reinterpret_cast<CudaEvent>(memory);
  ForgetLate(event);  // another's, where this one is now
  const MutexLock lock(state_mutex_);
  if (shared) shared_events_.insert(event);
  return event;
}
absl::Status EmulatedCuda::DestroyEvent(CudaEvent event) {
  TANDEM_RETURN_IF_ERROR(Called("DestroyEvent"));
  {
    const MutexLock lock(state_mutex_);
    shared_events_.erase(event);
    std::erase_if(held_records_, [event](const auto& held) { return held.first == event; });
  }
  late_events_.Forget(&StateOf(event));
  auto* const address = reinterpret_cast<std::byte*>(event);
  const absl::Status owned = Unmap(address, true);
  return owned.ok() ? owned : Unmap(address, false);
}
absl::StatusOr<CudaIpcHandle> EmulatedCuda::ExportEvent(CudaEvent event) {
  TANDEM_RETURN_IF_ERROR(Called("ExportEvent"));
  return HandleOf(reinterpret_cast<std::byte*>(event));
}
absl::StatusOr<CudaEvent> EmulatedCuda::OpenEvent(const CudaIpcHandle& handle) {
  TANDEM_RETURN_IF_ERROR(Called("OpenEvent"));
  TANDEM_ASSIGN_OR_RETURN(std::byte* const memory, Open(handle));
  const auto event = reinterpret_cast<CudaEvent>(memory);
  const MutexLock lock(state_mutex_);
  shared_events_.insert(event);
  return event;
}
bool EmulatedCuda::IsShared(CudaEvent event) const {
  const MutexLock lock(state_mutex_);
  return shared_events_.contains(event);
}
void EmulatedCuda::RecordShared(CudaEvent event, CudaStream stream) {
  const int64_t number = ++StateOf(event).recorded;
  {
    const MutexLock lock(state_mutex_);
    if (events_held_) {
      held_records_.emplace_back(event, number);
      return;
    }
  }
  if (options_.late_events && IsLate(stream)) {
    return late_events_.Record(&StateOf(event), number, stream);
  }
  DoLate(stream);
  StateOf(event).happened = number;
}
absl::Status EmulatedCuda::Record(CudaEvent event, CudaStream stream) {
  TANDEM_RETURN_IF_ERROR(Called("Record"));
  if (IsCaptured(stream)) return absl::OkStatus();
  if (IsShared(event)) {
    RecordShared(event, stream);
  } else {
    RecordLate(event, stream);
  }
  return absl::OkStatus();
}
absl::Status EmulatedCuda::WaitEvent(CudaStream stream, CudaEvent event) {
  TANDEM_RETURN_IF_ERROR(Called("WaitEvent"));
  if (IsCaptured(stream)) return absl::OkStatus();
  if (IsShared(event)) {
    const int64_t number = StateOf(event).recorded;
    Submit(stream, [event, number, closing = closing_] { WaitShared(event, number, *closing); });
  } else {
    WaitLate(stream, event);
  }
  return absl::OkStatus();
}
absl::StatusOr<bool> EmulatedCuda::HasHappened(CudaEvent event) {
  TANDEM_RETURN_IF_ERROR(NotWhileCapturing("cudaEventQuery"));
  if (IsShared(event)) {
    TANDEM_RETURN_IF_ERROR(Called("HasHappened"));
    late_events_.Settle();
    const bool happened = StateOf(event).happened >= StateOf(event).recorded;
    Want(StateOf(event), StateOf(event).recorded);  // time goes on
    return happened;
  }
  TANDEM_RETURN_IF_ERROR(CheckThread("cudaEventQuery"));
  {
    const MutexLock lock(state_mutex_);
    if (events_held_) return false;
  }
  const bool happened = HasHappenedLate(event);
  DoLate(event);  // time goes on
  return happened;
}
absl::Status EmulatedCuda::Synchronize(CudaEvent event) {
  TANDEM_RETURN_IF_ERROR(Called("Synchronize"));
  if (IsShared(event)) WaitShared(event, StateOf(event).recorded, *closing_);
  DoLate(event);
  return absl::OkStatus();
}
void EmulatedCuda::HoldEvents(bool held) {
  const MutexLock lock(state_mutex_);
  events_held_ = held;
  if (held) return;
  for (const auto& [event, number] : held_records_) StateOf(event).happened = number;
  held_records_.clear();
}
absl::StatusOr<double> EmulatedCuda::SecondsBetween(CudaEvent /*begin*/, CudaEvent /*end*/) {
  return 0.0;
}

absl::Status EmulatedCuda::BeginCapture(CudaStream stream) {
  TANDEM_RETURN_IF_ERROR(Called("BeginCapture"));
  if (!emulator::BeginCapture(stream)) return Internal("the stream is captured already");
  return absl::OkStatus();
}
absl::StatusOr<CudaGraph> EmulatedCuda::EndCapture(CudaStream stream) {
  auto work = std::make_unique<Work>();
  const Captured captured = emulator::EndCapture(stream, work.get());  // whatever fails then
  TANDEM_RETURN_IF_ERROR(Called("EndCapture"));
  if (captured == Captured::kNot) return Internal("the stream is not captured");
  if (captured == Captured::kVoid) {
    return Internal("cudaErrorStreamCaptureInvalidated: a call that was refused meanwhile");
  }
  return reinterpret_cast<CudaGraph>(work.release());
}
absl::Status EmulatedCuda::LaunchGraph(CudaGraph graph, CudaStream stream) {
  TANDEM_RETURN_IF_ERROR(Called("LaunchGraph"));
  for (const auto& work : *reinterpret_cast<const Work*>(graph)) Submit(stream, work);
  return absl::OkStatus();
}
absl::Status EmulatedCuda::DestroyGraph(CudaGraph graph) {
  delete reinterpret_cast<Work*>(graph);
  return Called("DestroyGraph");
}

absl::Status EmulatedCuda::LastError() {
  const absl::Status launch = TakeLaunchError();
  const MutexLock lock(state_mutex_);
  return lost_.ok() ? launch : lost_;
}

}  // namespace tandem::emulator
