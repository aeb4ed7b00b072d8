#include "common/process/stop_signal.h"

#include <csignal>
#include <cstdlib>

#include <pthread.h>

#include "common/base/log.h"

namespace tandem {
namespace {

// How often the watcher checks whether the StopSignal is being destroyed.
constexpr timespec kPoll{0, 100'000'000};

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

}  // namespace

StopSignal::StopSignal() {
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  watcher_ = NamedThread("signals", [this] { Watch(); });
}

StopSignal::~StopSignal() {
  const MutexLock lock(state_mutex_);
  closing_ = true;
}

void StopSignal::Watch() {
  const sigset_t signals = StopSignals();
  while (true) {
    const int signal = sigtimedwait(&signals, nullptr, &kPoll);
    {
      const MutexLock lock(state_mutex_);
      if (closing_) return;
      if (signal > 0 && !waiting_) std::_Exit(0);
    }
    if (signal <= 0) continue;
    LogInfo("Stopping on {}.", signal == SIGINT ? "SIGINT" : "SIGTERM");
    Raise(absl::OkStatus());
  }
}

void StopSignal::Raise(const absl::Status& reason) {
  const MutexLock lock(state_mutex_);
  if (!reason_) reason_ = reason;
  raised_.NotifyAll();
}

absl::Status StopSignal::Wait() {
  const MutexLock lock(state_mutex_);
  waiting_ = true;
  while (!reason_) raised_.Wait(state_mutex_);
  return *reason_;
}

}  // namespace tandem
