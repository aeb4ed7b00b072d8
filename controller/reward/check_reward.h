// Checks the reward section, and the reward's values that the algorithm section refers to.
#pragma once

#include <optional>
#include <set>
#include <string>

#include <absl/status/status.h>

#include "common/config/check.h"
#include "controller/reward/reward_function.h"

namespace tandem {

// A check for CheckConfig that needs no data: CheckRewardSection, and names in the algorithm
// section that no row's reward could have, whatever its data_source.
void CheckReward(const v1::Config& config, ConfigProblems& problems);

// Checks that need the scorers: names of terms, arguments, patterns. Calls no reward service.
void CheckRewardSection(const v1::Reward& config, ConfigProblems& problems);

// The keys of RewardScore::extras of every response to a row of `data_source`, which matters only
// if reward.function is auto: score and those of composite_reward.h. nullopt: reward.function is
// remote, and only the service knows its keys. A data_source without a function has no keys.
std::optional<std::set<std::string>> RewardKeys(const v1::Reward& config,
                                                const std::string& data_source);

// Checks that `reward` has the values that algorithm.gdpo_reward_keys (for gdpo) and
// algorithm.filter_groups.metric (if enabled) refer to, for each of `data_sources`, those of the
// training data. InvalidArgument lists the missing values, one per line: the key, the data source,
// the available values and the remedy. Where the keys are unknown (a remote reward), the first
// scores are checked during the run instead.
absl::Status CheckRewardKeys(const v1::Config& config,
                             const RewardFunction& reward,
                             const std::set<std::string>& data_sources);

}  // namespace tandem
