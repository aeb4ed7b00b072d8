// Clocks: code takes the time from a Clock, so that tests can pass tests/fakes/fake_clock.h.
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

// Adds the seconds between its construction and its destruction to `seconds`. Not thread-safe.
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
