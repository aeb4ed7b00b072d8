// Waiting in tests.
#pragma once

#include <stdexcept>
#include <string>

#include <absl/time/clock.h>
#include <absl/time/time.h>

#include "common/base/clock.h"

namespace tandem::testing {

// A deadline that only ends hung tests; tests wait for events, not for time. Longer than any pause
// of a machine; CTest's own timeout ends most tests earlier.
inline constexpr absl::Duration kPatience = absl::Minutes(10);

// Calls `done` every 20 ms until it returns true. Throws std::runtime_error naming `what` after
// `patience`.
template <typename Done>
void WaitUntil(const std::string& what, Done&& done, absl::Duration patience = kPatience) {
  const Instant deadline = RealClock().Now() + patience;
  while (!done()) {
    if (RealClock().Now() >= deadline) throw std::runtime_error("waited in vain for " + what);
    absl::SleepFor(absl::Milliseconds(20));
  }
}

}  // namespace tandem::testing
