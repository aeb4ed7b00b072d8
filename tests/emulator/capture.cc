#include "tests/emulator/capture.h"

#include <map>
#include <thread>
#include <utility>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "tests/emulator/emulator.h"
#include "tests/emulator/late_streams.h"

namespace tandem::emulator {
namespace {

struct Capture {
  std::thread::id by;
  Work work;
  bool spoiled = false;
};

Mutex capture_mutex;
std::map<CudaStream, Capture> open_captures ABSL_GUARDED_BY(capture_mutex);

}  // namespace

bool BeginCapture(CudaStream stream) {
  const MutexLock lock(capture_mutex);
  return open_captures.emplace(stream, Capture{.by = std::this_thread::get_id()}).second;
}

Captured EndCapture(CudaStream stream, Work* work) {
  const MutexLock lock(capture_mutex);
  const auto found = open_captures.find(stream);
  if (found == open_captures.end()) return Captured::kNot;
  const Capture capture = std::move(found->second);
  open_captures.erase(found);
  if (capture.spoiled) return Captured::kVoid;
  *work = capture.work;
  return Captured::kWhole;
}

bool SpoilCapture() {
  const MutexLock lock(capture_mutex);
  bool any = false;
  for (auto& [stream, capture] : open_captures) {
    if (capture.by != std::this_thread::get_id()) continue;
    capture.spoiled = any = true;
  }
  return any;
}

bool IsCaptured(CudaStream stream) {
  const MutexLock lock(capture_mutex);
  return open_captures.contains(stream);
}

absl::Status CheckCapture(CudaStream stream) {
  const MutexLock lock(capture_mutex);
  const auto found = open_captures.find(stream);
  if (found == open_captures.end() || !found->second.spoiled) return absl::OkStatus();
  return Internal("cudaErrorStreamCaptureInvalidated: the capture is void already");
}

void Submit(CudaStream stream, std::function<void()> work) {
  {
    const MutexLock lock(capture_mutex);
    const auto found = open_captures.find(stream);
    if (found != open_captures.end()) {
      found->second.work.push_back(std::move(work));
      return;
    }
  }
  if (!KeepLate(stream, work)) work();
}

}  // namespace tandem::emulator
