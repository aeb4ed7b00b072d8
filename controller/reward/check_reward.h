// Whether the reward section can work, told before anything starts.
#pragma once

#include <optional>
#include <set>
#include <string>

#include <absl/status/status.h>

#include "common/config/config.h"
#include "controller/reward/reward_function.h"

namespace tandem {

// What only the functions themselves know: names of terms, arguments, patterns. InvalidArgument
// lists every problem, one per line, with the key and where it was given. Calls nobody.
absl::Status CheckReward(const v1::Reward& config, const ConfigOrigins& origins = {});

// Which numbers a reward has beside its score, and whether the algorithm section asks for others.

// The keys of RewardScore::extras of every response to a row of `data_source`, which matters where
// reward.function is auto: score and those of composite_reward.h. None: reward.function is remote,
// and the service alone knows what it adds. A data_source without function has no keys.
std::optional<std::set<std::string>> RewardKeys(const v1::Reward& config,
                                                const std::string& data_source);

// Whether `reward` has what algorithm.gdpo_reward_keys (of gdpo) and algorithm.filter_groups.metric
// (where it is enabled) name, for every one of `data_sources`, those that are trained on.
// InvalidArgument lists what is lacking, one per line: the key, the data source, what there is and
// the remedy. Where the reward cannot tell, the first scores are what is checked.
absl::Status CheckRewardKeys(const v1::Config& config,
                             const RewardFunction& reward,
                             const std::set<std::string>& data_sources);

// The same before any data is read, with the places of the keys: InvalidArgument names what no row
// could have, whatever its data_source.
absl::Status CheckRewardKeys(const v1::Config& config, const ConfigOrigins& origins = {});

}  // namespace tandem
