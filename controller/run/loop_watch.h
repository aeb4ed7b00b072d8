// Tells whoever started the controller that its train loop lives, and not its process alone.
#pragma once

#include <vector>

#include "common/base/clock.h"
#include "common/base/progress.h"
#include "common/process/progress_watchdog.h"
#include "common/process/service_notifier.h"

namespace tandem {

// Gives signs of life by the notifier as long as no thread with work stands still. A loop that has
// not moved for a third of the watchdog's time (cluster.watchdog_seconds under the launcher) gives
// none until it moves again, so it is ended once it has stood still for that time, or up to a third
// longer. The stacks of all threads are logged before. A loop that waits for workers, a disk or a
// user moves or is in an OutsideWait. Not thread-safe.
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

}  // namespace tandem
