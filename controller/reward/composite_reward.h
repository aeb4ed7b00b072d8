// The reward of a run: a function that scores the answer, plus weighted terms.
#pragma once

#include <memory>

#include <absl/status/statusor.h>

#include "common/config/config.h"
#include "common/net/channel.h"
#include "controller/reward/reward_function.h"

namespace tandem {

// score = function + sum of weight * term + overlong penalty (overlong.h). extras, with verl's
// names: "score" is the function's own value; "acc" is the function's, if it reports one apart from
// its score (math_dapo), or the function's value if terms or the penalty are added to it; each
// term's name is its unweighted value; "overlong_reward" is the penalty and "overlong" whether it
// is not 0, with reward.overlong_buffer.log. Built from the reward section; InvalidArgument names
// the error. `security`: this host's files, for a remote service on another host.
absl::StatusOr<std::unique_ptr<RewardFunction>> MakeReward(const v1::Reward& config,
                                                           const RpcSecurity& security = {});

}  // namespace tandem
