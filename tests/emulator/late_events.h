// Events that other processes may wait for, recorded on late streams: what was before a record is
// done when somebody asks for the event, here or in another process, and not sooner. A process that
// reads another's memory without having waited finds what was there before. An option of
// EmulatedCuda's.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <thread>

#include "common/base/mutex.h"
#include "tests/emulator/late_streams.h"

namespace tandem::emulator {

// What the memory of a shared event holds, for all processes that have it open.
struct SharedEvent {
  std::atomic<int64_t> recorded;  // how many times
  std::atomic<int64_t> happened;  // of those, the last that has
  std::atomic<int64_t> wanted;    // of those, the last that somebody has asked for
};
static_assert(std::atomic<int64_t>::is_always_lock_free);

// Somebody asks whether a record has happened.
void Want(SharedEvent& event, int64_t number);

// The records of one process. Each stream has a thread, as another process's wish ends no call
// here.
class LateEvents {
 public:
  LateEvents() = default;
  ~LateEvents();
  LateEvents(const LateEvents&) = delete;
  LateEvents& operator=(const LateEvents&) = delete;

  // Record `number` of the event happens when what the late stream has to do by now is done.
  void Record(SharedEvent* event, int64_t number, CudaStream stream);
  // What is done already has happened, as after a wait for the stream.
  void Settle();
  // The event's memory goes.
  void Forget(const SharedEvent* event);
  // Before the stream is closed.
  void Close(CudaStream stream);

 private:
  struct Held {
    SharedEvent* event;
    int64_t number;
    LatePoint after;
  };
  struct OfStream {
    std::deque<Held> held;
    bool closes = false;
    ConditionVariable changed;
    std::jthread thread;
  };
  void Serve(OfStream* stream);
  // No more of its records happens. Its thread is joined by who destroys it, without the lock.
  static void End(OfStream& stream);
  static void SettleUpTo(OfStream* stream, int64_t pieces);

  Mutex records_mutex_;  // guards what each stream has, too
  std::map<CudaStream, std::unique_ptr<OfStream>> streams_ ABSL_GUARDED_BY(records_mutex_);
};

}  // namespace tandem::emulator
