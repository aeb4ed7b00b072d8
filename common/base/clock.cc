#include "common/base/clock.h"

#include <ctime>

#include "common/base/active_time.h"
#include "common/base/mutex.h"

namespace tandem {
namespace {

// CLOCK_MONOTONIC: neither date changes nor a suspended machine move it.
absl::Duration MonotonicReading() {
  timespec reading{};
  clock_gettime(CLOCK_MONOTONIC, &reading);
  return absl::DurationFromTimespec(reading);
}

class SystemClock final : public Clock {
 public:
  Instant Now() override {
    // The reading is taken under the lock: one that was taken before a pause and counted after it
    // would make the time go back.
    const MutexLock lock(active_mutex_);
    return Instant(active_.At(MonotonicReading()));
  }
  absl::Time WallNow() override { return absl::Now(); }
  void Sleep(absl::Duration duration) override { absl::SleepFor(duration); }

  void DiscountGapsAbove(absl::Duration limit) {
    const MutexLock lock(active_mutex_);
    active_.DiscountGapsAbove(limit, MonotonicReading());
  }
  absl::Duration Paused() {
    const MutexLock lock(active_mutex_);
    return active_.paused();
  }

 private:
  Mutex active_mutex_;
  ActiveTime active_ ABSL_GUARDED_BY(active_mutex_);
};

SystemClock& TheSystemClock() {
  static SystemClock clock;
  return clock;
}

}  // namespace

Clock& RealClock() { return TheSystemClock(); }

void DiscountGapsAbove(absl::Duration limit) { TheSystemClock().DiscountGapsAbove(limit); }

absl::Duration TimePaused() { return TheSystemClock().Paused(); }

}  // namespace tandem
