// Seconds of a scope, added up.
#pragma once

#include <absl/time/clock.h>
#include <absl/time/time.h>

namespace tandem {

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
