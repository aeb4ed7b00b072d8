// A client of a user's RewardService (proto/tandem/v1/reward.proto) with deadlines and retries.
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
  int64_t retries = 3;                          // after the first attempt
  absl::Duration backoff = absl::Seconds(0.5);  // doubled after every attempt, up to the longest
  absl::Duration longest_backoff = absl::Seconds(30);
  Clock* clock = &RealClock();
  RpcSecurity security;  // for a service on another host; calls on this host are unencrypted
};

// Thread-safe. Sends at most 256 items and 3 MiB per call, unless one item is larger. Retries
// Unavailable and DeadlineExceeded; other codes and a reply of the wrong length fail at once.
// Failures of a call name the address, the attempts and the last reason, and have the code Unknown
// whatever the service answered: its codes do not describe this run's workers, and no recovery
// would help.
absl::StatusOr<std::unique_ptr<RewardFunction>> MakeRemoteReward(
    const RewardClientOptions& options);

}  // namespace tandem
