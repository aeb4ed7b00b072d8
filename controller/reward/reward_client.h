// Calls a user's RewardService (proto/tandem/v1/reward.proto) with deadline and retry.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/base/clock.h"
#include "common/net/channel.h"
#include "controller/reward/reward_function.h"

namespace tandem {

struct RewardClientOptions {
  std::string address;                          // host:port or unix:/path
  absl::Duration timeout = absl::Seconds(30);   // of one attempt
  int64_t retries = 3;                          // further attempts
  absl::Duration backoff = absl::Seconds(0.5);  // doubled after every attempt
  Clock* clock = &RealClock();
  RpcSecurity security;  // for a service beyond this host; one on it is called in the clear
};

// Thread-safe. Calls of at most 256 items and 3 MiB, unless one item is larger.
// Retries Unavailable and DeadlineExceeded; other codes and a reply of the wrong length fail at
// once. Errors name the address, the attempts and the last reason, and are Unknown whatever the
// service answered: its codes say nothing of this run's workers, and no recovery would help.
absl::StatusOr<std::unique_ptr<RewardFunction>> MakeRemoteReward(
    const RewardClientOptions& options);

}  // namespace tandem
