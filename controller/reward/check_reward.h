// Checks of the reward section, and of the reward's values that the algorithm section names.
#pragma once

#include <optional>
#include <set>
#include <string>

#include <absl/status/status.h>

#include "common/config/check.h"
#include "controller/reward/reward_function.h"

namespace tandem {

// A check for CheckConfig, before any data is read: CheckRewardSection, and names in the algorithm
// section that no row's reward could have, whatever its data_source.
void CheckReward(const v1::Config& config, ConfigProblems& problems);

// What only the scorers know: names of terms, arguments, patterns. Calls no reward service.
void CheckRewardSection(const v1::Reward& config, ConfigProblems& problems);

// The keys of RewardScore::extras of every response to a row of `data_source`, which matters where
// reward.function is auto: score and those of composite_reward.h. None: reward.function is remote,
// and the service alone knows what it adds. A data_source without function has no keys.
std::optional<std::set<std::string>> RewardKeys(const v1::Reward& config,
                                                const std::string& data_source);

// Whether `reward` has what algorithm.gdpo_reward_keys (of gdpo) and algorithm.filter_groups.metric
// (where it is enabled) name, for every one of `data_sources`, those that are trained on.
// InvalidArgument lists what is lacking, one per line: the key, the data source, what there is and
// the remedy. Where the reward cannot say, the first scores are what is checked.
absl::Status CheckRewardKeys(const v1::Config& config,
                             const RewardFunction& reward,
                             const std::set<std::string>& data_sources);

}  // namespace tandem
