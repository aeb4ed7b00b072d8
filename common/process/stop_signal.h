// Lets main wait for SIGINT, SIGTERM or another reason to end the process.
#pragma once

#include <optional>

#include <absl/base/thread_annotations.h>
#include <absl/status/status.h>

#include "common/base/mutex.h"
#include "common/process/threads.h"

namespace tandem {

// Construct it at the start of main, before any other thread: it blocks both signals for the whole
// process and receives them in a thread of its own. Thread-safe.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // The first reason counts, later ones are ignored.
  void Raise(const absl::Status& reason);
  // Blocks until Raise is called and returns its reason, or until a signal arrives and returns OK.
  // A signal before Wait ends the process at once with exit code 0, as there is nothing to clean
  // up.
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
