#include "controller/reward/reward_keys.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/status_macros.h"
#include "controller/reward/data_sources.h"
#include "controller/reward/scorer_registry.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

struct Wanted {
  std::string config_key;
  std::string name;
  std::set<std::string> always;  // what this key may name with every reward
};

std::vector<Wanted> WantedOf(const v1::Algorithm& algorithm) {
  std::vector<Wanted> wanted;
  if (algorithm.adv_estimator() == "gdpo") {
    for (const std::string& name : algorithm.gdpo_reward_keys()) {
      wanted.push_back({"algorithm.gdpo_reward_keys", name, {}});
    }
  }
  if (algorithm.filter_groups().enable()) {
    // As FilterValue of controller/step/dynamic_sampling.h reads them.
    wanted.push_back({"algorithm.filter_groups.metric",
                      algorithm.filter_groups().metric(),
                      {"seq_reward", "seq_final_reward", "acc"}});
  }
  return wanted;
}

// `whose`: "" or " of rows with data_source ...".
std::string Lacks(const Wanted& wanted,
                  const std::string& place,
                  const std::string& whose,
                  std::set<std::string> keys) {
  keys.insert(wanted.always.begin(), wanted.always.end());
  const std::vector<std::string> scorers = ScorerNames();
  const bool could_be_term = std::count(scorers.begin(), scorers.end(), wanted.name) > 0;
  return fmt::format(
      "{}{}: the reward{} has no \"{}\"; it has {}: name one of these{}", wanted.config_key, place,
      whose, wanted.name, fmt::join(keys, ", "),
      could_be_term
          ? fmt::format(", or add a term {} to reward.terms", wanted.name)
          : std::string(", or what a term of reward.terms or a service of your own adds"));
}

absl::Status AllOf(const std::vector<std::string>& problems) {
  if (problems.empty()) return absl::OkStatus();
  return InvalidArgument("{}", fmt::join(problems, "\n"));
}

}  // namespace

std::optional<std::set<std::string>> RewardKeys(const v1::Reward& config,
                                                const std::string& data_source) {
  std::string function = config.function();
  if (function == "remote") return std::nullopt;
  if (function == "auto") function = FunctionOfDataSource(data_source).value_or("");
  if (function.empty()) return std::set<std::string>();
  std::set<std::string> keys = ExtrasOf(function);
  keys.insert("score");
  if (config.terms_size() > 0 || config.overlong_buffer().enable()) keys.insert("acc");
  for (const v1::RewardTerm& term : config.terms()) keys.insert(term.name());
  if (config.overlong_buffer().enable() && config.overlong_buffer().log()) {
    keys.insert({"overlong", "overlong_reward"});
  }
  return keys;
}

absl::Status CheckRewardKeys(const v1::Config& config,
                             const RewardFunction& reward,
                             const std::set<std::string>& data_sources) {
  const bool by_source = config.reward().function() == "auto";
  std::vector<std::string> problems;
  for (const Wanted& wanted : WantedOf(config.algorithm())) {
    for (const std::string& source : data_sources) {
      const auto keys = reward.Keys(source);
      if (!keys || keys->contains(wanted.name) || wanted.always.contains(wanted.name)) continue;
      const std::string whose =
          by_source ? fmt::format(" of rows with data_source \"{}\"", source) : std::string();
      problems.push_back(Lacks(wanted, "", whose, *keys));
      if (!by_source) break;  // the same for all
    }
  }
  return AllOf(problems);
}

absl::Status CheckRewardKeys(const v1::Config& config, const ConfigOrigins& origins) {
  std::set<std::string> sources = {""};
  if (config.reward().function() == "auto") sources = KnownDataSources();
  std::set<std::string> any;
  for (const std::string& source : sources) {
    const auto keys = RewardKeys(config.reward(), source);
    if (!keys) return absl::OkStatus();
    any.insert(keys->begin(), keys->end());
  }
  std::vector<std::string> problems;
  for (const Wanted& wanted : WantedOf(config.algorithm())) {
    if (any.contains(wanted.name) || wanted.always.contains(wanted.name)) continue;
    const auto origin = origins.find(wanted.config_key);
    problems.push_back(
        Lacks(wanted, origin == origins.end() ? "" : " at " + origin->second, "", any));
  }
  return AllOf(problems);
}

}  // namespace tandem
