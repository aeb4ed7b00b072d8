// Clocks: code takes the time from a Clock, so that tests can pass tests/fakes/fake_clock.h.
#pragma once

#include <compare>

#include <absl/time/clock.h>
#include <absl/time/time.h>

namespace tandem {

// A moment of a monotonic clock. It is not a date: only differences have a meaning, and only within
// one process. A default-constructed one is the clock's origin.
class Instant {
 public:
  constexpr Instant() = default;
  constexpr explicit Instant(absl::Duration since_origin) : since_origin_(since_origin) {}
  static constexpr Instant InfiniteFuture() { return Instant(absl::InfiniteDuration()); }
  static Instant InfinitePast() { return Instant(-absl::InfiniteDuration()); }

  friend bool operator==(Instant a, Instant b) { return a.since_origin_ == b.since_origin_; }
  friend std::weak_ordering operator<=>(Instant a, Instant b) {
    if (a.since_origin_ < b.since_origin_) return std::weak_ordering::less;
    if (b.since_origin_ < a.since_origin_) return std::weak_ordering::greater;
    return std::weak_ordering::equivalent;
  }
  friend absl::Duration operator-(Instant a, Instant b) {
    return a.since_origin_ - b.since_origin_;
  }
  friend Instant operator+(Instant a, absl::Duration b) { return Instant(a.since_origin_ + b); }
  friend Instant operator-(Instant a, absl::Duration b) { return Instant(a.since_origin_ - b); }
  Instant& operator+=(absl::Duration duration) {
    since_origin_ += duration;
    return *this;
  }

 private:
  absl::Duration since_origin_;
};

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  // For deadlines and durations: never goes back, and does not follow the machine's date.
  virtual Instant Now() = 0;
  // For stamps that people read; it jumps when the machine's date is set.
  virtual absl::Time WallNow() = 0;
  // Blocks the calling thread; only the outermost loops may call it.
  virtual void Sleep(absl::Duration duration) = 0;
};

// The process-wide clock of the machine. Where a PauseDetector (pause_detector.h) lives, its Now()
// stands still while the process is stopped.
Clock& RealClock();

// From now on RealClock().Now() skips every gap between two of its calls that is longer than
// `limit`. InfiniteDuration, the initial value, skips none. For PauseDetector.
void DiscountGapsAbove(absl::Duration limit);
// What RealClock().Now() has not counted so far.
absl::Duration TimePaused();

// Adds the seconds between its construction and its destruction to `seconds`. Not thread-safe.
class Stopwatch {
 public:
  explicit Stopwatch(double* seconds) : seconds_(seconds), start_(RealClock().Now()) {}
  ~Stopwatch() { *seconds_ += absl::ToDoubleSeconds(RealClock().Now() - start_); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double* const seconds_;
  const Instant start_;
};

}  // namespace tandem
