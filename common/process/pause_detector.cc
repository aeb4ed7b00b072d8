#include "common/process/pause_detector.h"

#include <chrono>

#include "common/base/clock.h"
#include "common/base/log.h"

namespace tandem {
namespace {
constexpr std::chrono::milliseconds kReadEvery{250};
constexpr absl::Duration kLongestGap = absl::Seconds(1);
}  // namespace

PauseDetector::PauseDetector() {
  DiscountGapsAbove(kLongestGap);
  reader_ = NamedThread("pause detector", [this] { ReadClock(); });
}

PauseDetector::~PauseDetector() {
  {
    const MutexLock lock(stop_mutex_);
    stopping_ = true;
  }
  stop_.NotifyAll();
  reader_.Join();
  DiscountGapsAbove(absl::InfiniteDuration());
}

void PauseDetector::ReadClock() {
  absl::Duration known = TimePaused();
  const MutexLock lock(stop_mutex_);
  while (!stopping_) {
    (void)stop_.WaitUntil(stop_mutex_, std::chrono::steady_clock::now() + kReadEvery);
    (void)RealClock().Now();
    const absl::Duration paused = TimePaused();
    if (paused > known) {
      LogWarn("This process was paused for {}; its deadlines are extended by that time.",
              absl::FormatDuration(paused - known));
    }
    known = paused;
  }
}

}  // namespace tandem
