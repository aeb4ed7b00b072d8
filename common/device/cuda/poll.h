// Waiting for a device without giving the thread away: what is waited for may never come.
#pragma once

#include <algorithm>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/base/clock.h"
#include "common/base/status_macros.h"

namespace tandem {

// Asks `done` (StatusOr<bool>) until it says yes: OK, or its error. After some 100 times it calls
// `look` (Status), whose error ends the wait too, and sleeps between 20 us and 1 ms before every
// further one. DeadlineExceeded, to be told by the caller, at `deadline`.
template <typename Done, typename Look>
absl::Status PollUntil(Clock& clock, absl::Time deadline, const Done& done, const Look& look) {
  constexpr int kSpins = 100;
  for (int polls = 0;; ++polls) {
    TANDEM_ASSIGN_OR_RETURN(const bool ended, done());
    if (ended) return absl::OkStatus();
    if (polls < kSpins) continue;
    TANDEM_RETURN_IF_ERROR(look());
    if (clock.Now() >= deadline) return absl::DeadlineExceededError("the deadline has passed");
    clock.Sleep(absl::Microseconds(std::min(20 + (polls - kSpins), 1000)));
  }
}

}  // namespace tandem
