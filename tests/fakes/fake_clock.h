// A clock that moves only when a test says so.
#pragma once

#include <functional>
#include <utility>

#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace tandem::testing {

// Thread-safe. Sleep advances the clock instead of waiting, and then calls the hook: what happens
// in the world while somebody waits.
class FakeClock : public Clock {
 public:
  explicit FakeClock(absl::Time wall_start = absl::FromUnixSeconds(1'700'000'000))
      : wall_now_(wall_start) {}

  Instant Now() override {
    const MutexLock lock(time_mutex_);
    return now_;
  }
  absl::Time WallNow() override {
    const MutexLock lock(time_mutex_);
    return wall_now_;
  }
  void Sleep(absl::Duration duration) override {
    Advance(duration);
    if (on_sleep_) on_sleep_();
  }
  void Advance(absl::Duration duration) {
    const MutexLock lock(time_mutex_);
    now_ += duration;
    wall_now_ += duration;
  }
  // The machine's date is set: what follows Now() must not notice.
  void SetDate(absl::Duration change) {
    const MutexLock lock(time_mutex_);
    wall_now_ += change;
  }
  // Set before other threads use the clock.
  void OnSleep(std::function<void()> hook) { on_sleep_ = std::move(hook); }

 private:
  Mutex time_mutex_;
  Instant now_ ABSL_GUARDED_BY(time_mutex_) = Instant(absl::Hours(1));
  absl::Time wall_now_ ABSL_GUARDED_BY(time_mutex_);
  std::function<void()> on_sleep_;
};

}  // namespace tandem::testing
