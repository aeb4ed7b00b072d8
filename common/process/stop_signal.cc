#include "common/process/stop_signal.h"

#include <csignal>
#include <cstdlib>

#include <pthread.h>

#include "common/base/log.h"

namespace tandem {
namespace {

// How often the watcher looks whether it is to end.
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
  std::lock_guard lock(mutex_);
  closing_ = true;
}

void StopSignal::Watch() {
  const sigset_t signals = StopSignals();
  while (true) {
    const int signal = sigtimedwait(&signals, nullptr, &kPoll);
    {
      std::lock_guard lock(mutex_);
      if (closing_) return;
      if (signal > 0 && !waiting_) std::_Exit(0);
    }
    if (signal <= 0) continue;
    LogInfo("stopping on {}", signal == SIGINT ? "SIGINT" : "SIGTERM");
    Raise(absl::OkStatus());
  }
}

void StopSignal::Raise(const absl::Status& reason) {
  std::lock_guard lock(mutex_);
  if (!reason_) reason_ = reason;
  raised_.notify_all();
}

absl::Status StopSignal::Wait() {
  std::unique_lock lock(mutex_);
  waiting_ = true;
  raised_.wait(lock, [this] { return reason_.has_value(); });
  return *reason_;
}

}  // namespace tandem
