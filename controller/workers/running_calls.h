// Calls to several workers that run at once, and a thread that waits for them.
#pragma once

#include <chrono>
#include <cstddef>

#include <absl/base/thread_annotations.h>

#include "common/base/mutex.h"

namespace tandem {

// How often a caller that waits for workers asks whether it was interrupted.
inline constexpr std::chrono::milliseconds kInterruptPoll{50};

// Counts calls. Their ends may come from any thread, also after the one that waited has gone on:
// share it with them. Thread-safe.
class RunningCalls {
 public:
  explicit RunningCalls(size_t calls) : running_(calls) {}

  // One call has ended.
  void End();
  // Whether all have ended, within kInterruptPoll. Tells the watchdog of the calling thread, as
  // calls have limits of their own.
  bool Wait();
  // Returns when all have ended.
  void WaitForAll();

 private:
  Mutex calls_mutex_;
  ConditionVariable changed_;
  size_t running_ ABSL_GUARDED_BY(calls_mutex_);
};

}  // namespace tandem
