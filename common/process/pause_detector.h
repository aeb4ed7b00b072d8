// Notices that this process was stopped, and keeps that time out of its deadlines.
#pragma once

#include <absl/base/thread_annotations.h>
#include <absl/time/time.h>

#include "common/base/mutex.h"
#include "common/process/threads.h"

namespace tandem {

// While one exists, RealClock().Now() stands still while the process is stopped: by SIGSTOP or a
// debugger, with its whole virtual machine, or because a loaded machine gave it no processor. What
// a peer sent meanwhile waits in the sockets, so the peer's window goes on where it stood. A pause
// is logged with its length. It takes a thread that reads the clock four times a second; a gap of
// more than a second between two readings is a pause. One at a time per process.
class PauseDetector {
 public:
  PauseDetector();
  ~PauseDetector();
  PauseDetector(const PauseDetector&) = delete;
  PauseDetector& operator=(const PauseDetector&) = delete;

 private:
  void ReadClock();

  Mutex stop_mutex_;
  ConditionVariable stop_;
  bool stopping_ ABSL_GUARDED_BY(stop_mutex_) = false;
  NamedThread reader_;
};

}  // namespace tandem
