// The reward of a run: one function that judges the answer, plus weighted terms.
#pragma once

#include <memory>

#include <absl/status/statusor.h>

#include "common/config/config.h"
#include "common/net/channel.h"
#include "controller/reward/reward_function.h"

namespace tandem {

// score = function + sum of weight * term + overlong penalty (overlong.h). extras, as verl has
// them: "score" is the function's own value, "acc" the function's where it tells that apart from
// its score (math_dapo), or that value where terms or the penalty are added to it; each term's name
// is its unweighted value; "overlong_reward" the penalty and "overlong" whether there is one, if
// reward.overlong_buffer.log. Built from the reward section; InvalidArgument names what is wrong.
// `security`: this host's, for a remote service on another one.
absl::StatusOr<std::unique_ptr<RewardFunction>> MakeReward(const v1::Reward& config,
                                                           const RpcSecurity& security = {});

}  // namespace tandem
