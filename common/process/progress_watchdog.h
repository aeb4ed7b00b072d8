// Ends a worker of which a thread stands still although there is work.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <absl/base/thread_annotations.h>
#include <absl/time/time.h>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/progress.h"
#include "common/process/threads.h"

namespace tandem {

// A thread that has work, and for how long it has not moved.
struct Standstill {
  ThreadProgress progress;
  absl::Duration time;
};

// Measures for how long threads stand still: a pure state machine. Not thread-safe.
class StandstillMeter {
 public:
  // Of the threads that have work, the one that has not moved for the longest time, as far as
  // earlier looks tell; nullopt: no thread has work.
  std::optional<Standstill> Look(const std::vector<ThreadProgress>& threads, Instant now);

 private:
  struct Seen {
    int64_t moves = 0;
    Instant moved_at;
  };

  std::map<int64_t, Seen> seen_;  // by thread
};

// While one exists, a thread looks at CurrentProgress(). If a thread had work and did not move for
// `limit` (cluster.progress_timeout_seconds), it writes the stack of every thread to stderr, says
// what stood still where, and ends the process with kExitInternal, so that its launcher starts it
// again: an engine that is stuck cannot be asked to end.
class ProgressWatchdog {
 public:
  // `name`: "rollout 1".
  ProgressWatchdog(std::string name, absl::Duration limit);
  ~ProgressWatchdog();
  ProgressWatchdog(const ProgressWatchdog&) = delete;
  ProgressWatchdog& operator=(const ProgressWatchdog&) = delete;

 private:
  void Watch();

  const std::string name_;
  const absl::Duration limit_;
  Mutex stop_mutex_;
  ConditionVariable stop_;
  bool stopping_ ABSL_GUARDED_BY(stop_mutex_) = false;
  NamedThread watcher_;
};

}  // namespace tandem
