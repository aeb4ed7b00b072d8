// The reward of a run: one function that judges the answer, plus weighted terms.
#pragma once

#include <memory>

#include <absl/status/statusor.h>

#include "common/config/config.h"
#include "common/rpc/security.h"
#include "controller/reward/reward_function.h"

namespace tandem {

// score = function + sum of weight * term. extras: "score" is the function's own value, each term's
// name its unweighted value. Built from the reward section; InvalidArgument names what is wrong.
// `security`: this host's, for a remote service on another one.
absl::StatusOr<std::unique_ptr<RewardFunction>> MakeReward(const v1::Reward& config,
                                                           const RpcSecurity& security = {});

}  // namespace tandem
