// Lines about refused calls: whoever may connect must not fill the log.
#pragma once

#include <map>
#include <string>

#include <absl/base/thread_annotations.h>
#include <absl/time/time.h>

#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace tandem {

// Thread-safe.
class RefusalLog {
 public:
  static constexpr absl::Duration kPause = absl::Minutes(1);
  static constexpr size_t kMostLines = 100;  // within kPause, of all callers together

  explicit RefusalLog(Clock& clock = RealClock()) : clock_(clock) {}

  // Logs `text`, which names no secret, unless it has for `who`, or kMostLines times, within
  // kPause.
  void Tell(const std::string& who, const std::string& text);

  // Whether Tell would log a line for `who`; then it counts as told.
  bool IsDue(const std::string& who);

 private:
  Clock& clock_;
  Mutex told_mutex_;
  std::map<std::string, Instant> told_  // within kPause
      ABSL_GUARDED_BY(told_mutex_);
};

}  // namespace tandem
