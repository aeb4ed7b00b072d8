// Ends a worker whose engine stands still although there is work.
#pragma once

#include <optional>
#include <string>

#include <absl/base/thread_annotations.h>
#include <absl/time/time.h>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/progress.h"
#include "common/process/threads.h"

namespace tandem {

// Decides when an engine stands still: a pure state machine. Not thread-safe.
class StallDetector {
 public:
  explicit StallDetector(absl::Duration limit) : limit_(limit) {}

  // How long `progress` has not moved while work was due, once that is `limit` or more.
  std::optional<absl::Duration> Look(const EngineProgress& progress, Instant now);

 private:
  const absl::Duration limit_;
  int64_t steps_ = -1;
  Instant moved_at_;
};

// While one exists, a thread looks at CurrentProgress(). If work was due and nothing moved for
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
