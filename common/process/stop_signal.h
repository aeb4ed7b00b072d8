// Why a process is to end: SIGINT, SIGTERM, or a reason somebody gives. main waits for it.
#pragma once

#include <optional>

#include <absl/status/status.h>

#include "common/base/mutex.h"
#include "common/process/threads.h"

namespace tandem {

// Make one first thing in main, before any other thread: it blocks both signals for the whole
// process and takes them in a thread of its own. Thread-safe.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // The first reason counts, later ones are ignored.
  void Raise(const absl::Status& reason);
  // Blocks until Raise or a signal (which is OK). A signal before Wait is called ends the process
  // at once with exit code 0: whatever start-up waits for, nothing needs to be cleaned up yet.
  absl::Status Wait();

 private:
  void Watch();

  Mutex state_mutex_;
  ConditionVariable raised_;
  std::optional<absl::Status> reason_ ABSL_GUARDED_BY(state_mutex_);
  bool waiting_ ABSL_GUARDED_BY(state_mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(state_mutex_) = false;
  NamedThread watcher_;
};

}  // namespace tandem
