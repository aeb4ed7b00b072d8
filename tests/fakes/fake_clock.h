// A clock that moves only when a test says so.
#pragma once

#include <mutex>

#include "common/base/clock.h"

namespace tandem::testing {

// Thread-safe. Sleep advances the clock instead of waiting.
class FakeClock : public Clock {
 public:
  explicit FakeClock(absl::Time start = absl::FromUnixSeconds(1'700'000'000)) : now_(start) {}

  absl::Time Now() override {
    std::lock_guard lock(mutex_);
    return now_;
  }
  void Sleep(absl::Duration duration) override { Advance(duration); }
  void Advance(absl::Duration duration) {
    std::lock_guard lock(mutex_);
    now_ += duration;
  }

 private:
  std::mutex mutex_;
  absl::Time now_;
};

}  // namespace tandem::testing
