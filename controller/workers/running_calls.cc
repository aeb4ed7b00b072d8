#include "controller/workers/running_calls.h"

#include "common/base/progress.h"

namespace tandem {

void RunningCalls::End() {
  const MutexLock lock(calls_mutex_);
  --running_;
  changed_.NotifyAll();
}

bool RunningCalls::Wait() {
  NoteProgress();
  const MutexLock lock(calls_mutex_);
  const auto deadline = std::chrono::steady_clock::now() + kInterruptPoll;
  while (running_ > 0 && changed_.WaitUntil(calls_mutex_, deadline)) {
  }
  return running_ == 0;
}

void RunningCalls::WaitForAll() {
  while (!Wait()) {
  }
}

}  // namespace tandem
