// The time during which a process could run, from readings of a monotonic clock.
#pragma once

#include <absl/time/time.h>

namespace tandem {

// A process that was stopped (SIGSTOP, a debugger, a suspended virtual machine) finds a gap between
// two readings that something takes often. What is longer than the limit was a pause and is not
// counted: no deadline passes while this process cannot meet it. Not thread-safe.
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
