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

// Seconds of a scope, added up.

// Adds the time of its scope to `seconds`.
class Stopwatch {
 public:
  explicit Stopwatch(double* seconds) : seconds_(seconds), start_(absl::Now()) {}
  ~Stopwatch() { *seconds_ += absl::ToDoubleSeconds(absl::Now() - start_); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double* const seconds_;
  const absl::Time start_;
};

}  // namespace tandem
