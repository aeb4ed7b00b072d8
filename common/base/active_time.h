// The time during which a process could run, from readings of a monotonic clock.
#pragma once

#include <absl/time/time.h>

namespace tandem {

// Where the clock is read often, a long gap between two readings means that the process was stopped
// (SIGSTOP, a debugger, a suspended virtual machine). A gap longer than the limit is not counted,
// because no work could have been done to meet a deadline in it. Not thread-safe.
class ActiveTime {
 public:
  // From `now` on; InfiniteDuration, the default, counts everything.
  void DiscountGapsAbove(absl::Duration limit, absl::Duration now) {
    limit_ = limit;
    last_ = now;
  }

  // The active time at `now`, which is at or after the reading of the preceding call.
  absl::Duration At(absl::Duration now) {
    if (now - last_ > limit_) paused_ += now - last_;
    last_ = now;
    return now - paused_;
  }

  // What has not been counted so far.
  absl::Duration paused() const { return paused_; }

 private:
  absl::Duration limit_ = absl::InfiniteDuration();
  absl::Duration last_;
  absl::Duration paused_;
};

}  // namespace tandem
