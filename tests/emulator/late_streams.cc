#include "tests/emulator/late_streams.h"

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <utility>

#include "common/base/mutex.h"

namespace tandem::emulator {
namespace {

struct Late {
  std::deque<std::function<void()>> work;
  int64_t done = 0;      // pieces of work
  bool working = false;  // a thread is at the next one

  int64_t submitted() const { return done + (working ? 1 : 0) + static_cast<int64_t>(work.size()); }
};

Mutex late_mutex;
ConditionVariable piece_done;
std::map<CudaStream, Late> late_streams ABSL_GUARDED_BY(late_mutex);
std::map<CudaEvent, LatePoint> recorded ABSL_GUARDED_BY(late_mutex);

// The latest record of an event; of no stream if there is none.
LatePoint PointOf(CudaEvent event) {
  const MutexLock lock(late_mutex);
  const auto found = recorded.find(event);
  return found == recorded.end() ? LatePoint() : found->second;
}

}  // namespace

bool IsLate(CudaStream stream) {
  const MutexLock lock(late_mutex);
  return late_streams.contains(stream);
}

LatePoint LateEnd(CudaStream stream) {
  const MutexLock lock(late_mutex);
  const auto found = late_streams.find(stream);
  return {stream, found == late_streams.end() ? 0 : found->second.submitted()};
}

bool IsDone(const LatePoint& point) {
  const MutexLock lock(late_mutex);
  const auto found = late_streams.find(point.stream);
  return found == late_streams.end() || found->second.done >= point.pieces;
}

void DoLate(const LatePoint& point) {
  const MutexLock lock(late_mutex);
  while (true) {
    const auto stream = late_streams.find(point.stream);
    if (stream == late_streams.end() || stream->second.done >= point.pieces) return;
    Late& late = stream->second;
    if (late.working) {
      piece_done.Wait(late_mutex);
      continue;
    }
    if (late.work.empty()) return;
    late.working = true;
    std::function<void()> work = std::move(late.work.front());
    late.work.pop_front();
    late_mutex.Unlock();
    work();  // may do the work of other streams first
    work = nullptr;
    late_mutex.Lock();
    if (const auto open = late_streams.find(point.stream); open != late_streams.end()) {
      open->second.working = false;
      ++open->second.done;
    }
    piece_done.NotifyAll();
  }
}

void OpenLate(CudaStream stream) {
  const MutexLock lock(late_mutex);
  late_streams.emplace(stream, Late());
}

void CloseLate(CudaStream stream) {
  const MutexLock lock(late_mutex);
  late_streams.erase(stream);
  piece_done.NotifyAll();
}

bool KeepLate(CudaStream stream, std::function<void()>& work) {
  const MutexLock lock(late_mutex);
  const auto found = late_streams.find(stream);
  if (found == late_streams.end()) return false;
  found->second.work.push_back(std::move(work));
  return true;
}

void RecordLate(CudaEvent event, CudaStream stream) {
  const MutexLock lock(late_mutex);
  const auto found = late_streams.find(stream);
  if (found == late_streams.end()) {
    recorded.erase(event);  // it has happened
  } else {
    recorded[event] = {stream, found->second.submitted()};
  }
}

// What is waited for is the event's latest record now, whatever is recorded later.
void WaitLate(CudaStream stream, CudaEvent event) {
  const LatePoint point = PointOf(event);
  std::function<void()> wait = [point] { DoLate(point); };
  if (!KeepLate(stream, wait)) wait();
}

void DoLate(CudaStream stream) { DoLate(LatePoint{stream, std::numeric_limits<int64_t>::max()}); }

void DoLate(CudaEvent event) { DoLate(PointOf(event)); }

bool HasHappenedLate(CudaEvent event) { return IsDone(PointOf(event)); }

void ForgetLate(CudaEvent event) {
  const MutexLock lock(late_mutex);
  recorded.erase(event);
}

}  // namespace tandem::emulator
