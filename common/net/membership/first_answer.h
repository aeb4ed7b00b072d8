// The first call of a process to its controller, which may not be there yet.
#pragma once

#include <functional>
#include <string>

#include <absl/status/status.h>
#include <absl/time/time.h>

#include "common/base/clock.h"
#include "common/net/security/rpc_security.h"

namespace tandem {

// Nobody answered, so that the call may be made again.
bool IsUnreachable(const absl::Status& status);

struct FirstAnswerOptions {
  std::string controller;    // its address
  std::string what_is_held;  // "the rank": what ALREADY_EXISTS speaks of
  RpcSecurity security;
  Clock* clock = &RealClock();  // measures `timeout`
  absl::Duration timeout;
};

// Makes `call` until the controller has answered, with a short pause after each attempt. An answer
// is also a refusal, but for two: AlreadyExists, as the holder may be about to end, and one
// Unauthenticated, as a controller that starts makes a new token and the call may have read the old
// one. Blocks. Unavailable: no controller within the timeout. FailedPrecondition: what listens
// there closes every connection. Else as `call`.
absl::Status AwaitFirstAnswer(const FirstAnswerOptions& options,
                              const std::function<absl::Status()>& call);

}  // namespace tandem
