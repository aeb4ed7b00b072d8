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

// A thread that has work and has not moved.
struct Stall {
  ThreadProgress progress;
  absl::Duration time;
};

// Decides when a thread stands still: a pure state machine. Not thread-safe.
class StallDetector {
 public:
  explicit StallDetector(absl::Duration limit) : limit_(limit) {}

  // The thread that has not moved for the longest time while work was due, once that is `limit` or
  // more.
  std::optional<Stall> Look(const std::vector<ThreadProgress>& threads, Instant now);

 private:
  struct Seen {
    int64_t moves = 0;
    Instant moved_at;
  };

  const absl::Duration limit_;
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
