#include "tests/emulator/late_events.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace tandem::emulator {
namespace {

// How often another process's memory is looked at while a record waits to be asked for: nothing
// wakes this process when it changes.
constexpr std::chrono::microseconds kLook{200};

// Two streams may record one event: what one of them has done later does not undo that the other's
// newer record has happened.
void Raise(std::atomic<int64_t>& value, int64_t number) {
  int64_t before = value;
  while (before < number && !value.compare_exchange_weak(before, number)) {
  }
}

}  // namespace

void Want(SharedEvent& event, int64_t number) { Raise(event.wanted, number); }

LateEvents::~LateEvents() {
  std::map<CudaStream, std::unique_ptr<OfStream>> streams;
  {
    const MutexLock lock(records_mutex_);
    streams.swap(streams_);
    for (auto& [stream, of] : streams) End(*of);
  }
}

void LateEvents::End(OfStream& stream) {
  stream.closes = true;
  stream.changed.NotifyAll();
}

void LateEvents::Record(SharedEvent* event, int64_t number, CudaStream stream) {
  const MutexLock lock(records_mutex_);
  std::unique_ptr<OfStream>& of = streams_[stream];
  if (of == nullptr) {
    of = std::make_unique<OfStream>();
    of->thread = std::jthread([this, of = of.get()] { Serve(of); });
  }
  of->held.push_back({event, number, LateEnd(stream)});
  of->changed.NotifyAll();
}

void LateEvents::Serve(OfStream* stream) {
  const MutexLock lock(records_mutex_);
  while (!stream->closes) {
    const auto wanted = std::find_if(
        stream->held.rbegin(), stream->held.rend(),
        [](const Held& held) { return held.event->wanted >= held.number || IsDone(held.after); });
    if (wanted == stream->held.rend()) {
      if (stream->held.empty()) {
        stream->changed.Wait(records_mutex_);
      } else {
        (void)stream->changed.WaitUntil(records_mutex_, std::chrono::steady_clock::now() + kLook);
      }
      continue;
    }
    const LatePoint after = wanted->after;
    records_mutex_.Unlock();
    DoLate(after);
    records_mutex_.Lock();
    SettleUpTo(stream, after.pieces);
  }
}

void LateEvents::SettleUpTo(OfStream* stream, int64_t pieces) {
  std::deque<Held>& held = stream->held;
  while (!held.empty() && held.front().after.pieces <= pieces) {
    Raise(held.front().event->happened, held.front().number);
    held.pop_front();
  }
}

void LateEvents::Settle() {
  const MutexLock lock(records_mutex_);
  for (auto& [stream, of] : streams_) {
    while (!of->held.empty() && IsDone(of->held.front().after)) {
      SettleUpTo(of.get(), of->held.front().after.pieces);
    }
  }
}

void LateEvents::Forget(const SharedEvent* event) {
  const MutexLock lock(records_mutex_);
  for (auto& [stream, of] : streams_) {
    std::erase_if(of->held, [event](const Held& held) { return held.event == event; });
  }
}

void LateEvents::Close(CudaStream stream) {
  std::unique_ptr<OfStream> closed;
  {
    const MutexLock lock(records_mutex_);
    const auto found = streams_.find(stream);
    if (found == streams_.end()) return;
    closed = std::move(found->second);
    streams_.erase(found);
    End(*closed);
  }
}

}  // namespace tandem::emulator
