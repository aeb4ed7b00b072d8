// Time as a seam: logic takes a Clock, tests pass a fake one (tests/fakes/fake_clock.h).
#pragma once

#include <absl/time/clock.h>
#include <absl/time/time.h>

namespace tandem {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() = 0;
  // Blocks the calling thread; only the outermost loops may call it.
  virtual void Sleep(absl::Duration duration) = 0;
};

// The process-wide clock of the machine.
Clock& RealClock();

}  // namespace tandem
