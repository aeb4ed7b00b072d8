// Reports to the supervisor that the controller lives and its train loop makes progress.
#pragma once

#include <atomic>
#include <vector>

#include "common/base/clock.h"
#include "common/base/progress.h"
#include "common/process/progress_watchdog.h"
#include "common/process/service_notifier.h"
#include "common/process/threads.h"

namespace tandem {

// Sends keep-alives while no thread that has work is stalled. After a stall of a third of the
// watchdog's time (cluster.watchdog_seconds under the launcher) it logs the stacks of all threads
// and sends none until there is progress; the supervisor then kills the process after 1 to 4/3 of
// the watchdog's time. Waiting for workers, a disk or a user is not a stall. Not thread-safe.
class LoopWatch {
 public:
  // The references must outlive the object.
  LoopWatch(ServiceNotifier& notifier, Clock& clock) : notifier_(notifier), clock_(clock) {}

  // Must be called often.
  void Poll(const std::vector<ThreadProgress>& threads = CurrentProgress());

 private:
  void TellOnce(const Standstill& still);

  ServiceNotifier& notifier_;
  Clock& clock_;
  StandstillMeter meter_;
  bool told_ = false;
};

// A thread sends keep-alives as LoopWatch says: while no thread that has work is stalled. It begins
// before anything is read, so that the supervisor may expect a first sign soon after it started
// the process, and ends after the report, so that a long one is not taken for a standstill.
class SignsOfLife {
 public:
  SignsOfLife();
  ~SignsOfLife();

  // The controller listens. Thread-safe.
  void Ready() const { notifier_.Ready(); }

 private:
  ServiceNotifier notifier_;
  LoopWatch loop_;
  std::atomic<bool> over_ = false;
  NamedThread thread_;
};

}  // namespace tandem
