#include "tests/emulator/late_events.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace tandem::emulator {
namespace {

// How often another process's memory is looked at while a record waits to be asked for: nothing
// wakes this process when it changes.
constexpr std::chrono::microseconds kLook{200};

}  // namespace

void Want(SharedEvent& event, int64_t number) {
  int64_t before = event.wanted;
  while (before < number && !event.wanted.compare_exchange_weak(before, number)) {
  }
}

LateEvents::~LateEvents() {
  std::map<CudaStream, std::unique_ptr<OfStream>> streams;
  {
    std::lock_guard lock(mutex_);
    streams.swap(streams_);
  }
  for (auto& [stream, of] : streams) of->thread.request_stop();
  // Their threads are joined outside of the lock that they take.
}

void LateEvents::Record(SharedEvent* event, int64_t number, CudaStream stream) {
  std::lock_guard lock(mutex_);
  std::unique_ptr<OfStream>& of = streams_[stream];
  if (of == nullptr) {
    of = std::make_unique<OfStream>();
    of->thread =
        std::jthread([this, of = of.get()](const std::stop_token& stop) { Serve(of, stop); });
  }
  of->held.push_back({event, number, LateEnd(stream)});
  of->changed.notify_all();
}

void LateEvents::Serve(OfStream* stream, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    const auto wanted = std::find_if(
        stream->held.rbegin(), stream->held.rend(),
        [](const Held& held) { return held.event->wanted >= held.number || IsDone(held.after); });
    if (wanted == stream->held.rend()) {
      const bool idle = stream->held.empty();
      const auto grown = [stream] { return !stream->held.empty(); };
      idle ? stream->changed.wait(lock, stop, grown)
           : stream->changed.wait_for(lock, stop, kLook, [] { return false; });
      continue;
    }
    const LatePoint after = wanted->after;
    lock.unlock();
    DoLate(after);
    lock.lock();
    SettleUpTo(stream, after.pieces);
  }
}

void LateEvents::SettleUpTo(OfStream* stream, int64_t pieces) {
  std::deque<Held>& held = stream->held;
  while (!held.empty() && held.front().after.pieces <= pieces) {
    held.front().event->happened = held.front().number;
    held.pop_front();
  }
}

void LateEvents::Settle() {
  std::lock_guard lock(mutex_);
  for (auto& [stream, of] : streams_) {
    while (!of->held.empty() && IsDone(of->held.front().after)) {
      SettleUpTo(of.get(), of->held.front().after.pieces);
    }
  }
}

void LateEvents::Forget(const SharedEvent* event) {
  std::lock_guard lock(mutex_);
  for (auto& [stream, of] : streams_) {
    std::erase_if(of->held, [event](const Held& held) { return held.event == event; });
  }
}

void LateEvents::Close(CudaStream stream) {
  std::unique_ptr<OfStream> closed;
  {
    std::lock_guard lock(mutex_);
    const auto found = streams_.find(stream);
    if (found == streams_.end()) return;
    closed = std::move(found->second);
    streams_.erase(found);
    closed->thread.request_stop();
  }
  // Its thread is joined outside of the lock that it takes.
}

}  // namespace tandem::emulator
