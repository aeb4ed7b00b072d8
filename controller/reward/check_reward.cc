#include "controller/reward/check_reward.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/status.h"
#include "controller/reward/overlong.h"
#include "controller/reward/scorer_registry.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

// reward.function=auto selects a function for each row: at least one must accept the arguments.
absl::Status CheckAutoArgs(const std::string& args) {
  if (args.empty()) return absl::OkStatus();
  absl::Status first;
  for (const std::string& name : FunctionNames()) {
    const absl::Status made = MakeScorer(name, args).status();
    if (made.ok()) return made;
    if (first.ok()) first = made;
  }
  return first;
}

absl::Status CheckFunction(const v1::Reward& config) {
  if (config.function() == "auto") return CheckAutoArgs(config.args());
  if (config.function() != "remote") return MakeScorer(config.function(), config.args()).status();
  if (!config.service_address().empty()) return absl::OkStatus();
  return InvalidArgument(
      "reward.function is remote but reward.service_address is empty: name the RewardService, e.g. "
      "127.0.0.1:7000");
}

void CheckTerms(const v1::Reward& config, ConfigProblems& problems) {
  std::set<std::string> names;
  for (int i = 0; i < config.terms_size(); ++i) {
    const v1::RewardTerm& term = config.terms(i);
    const std::string place = fmt::format("reward.terms[{}]: ", i);
    const absl::Status made = MakeScorer(term.name(), term.args()).status();
    problems.Require(made.ok(), {"reward.terms"}, place + std::string(made.message()));
    problems.Require(names.insert(term.name()).second, {"reward.terms"},
                     fmt::format("{}there is a term {} already, and values are told apart by name; "
                                 "make one of the two, as with one pattern for both",
                                 place, term.name()));
  }
}

// A value of the reward that a key of the algorithm section refers to.
struct WantedKey {
  std::string config_key;
  std::string name;
  std::set<std::string> always;  // names that are valid with every reward
};

std::vector<WantedKey> WantedKeys(const v1::Algorithm& algorithm) {
  std::vector<WantedKey> wanted;
  if (algorithm.adv_estimator() == "gdpo") {
    for (const std::string& name : algorithm.gdpo_reward_keys()) {
      wanted.push_back({"algorithm.gdpo_reward_keys", name, {}});
    }
  }
  if (algorithm.filter_groups().enable()) {
    // The names that FilterValue (controller/step/dynamic_sampling.h) accepts.
    wanted.push_back({"algorithm.filter_groups.metric",
                      algorithm.filter_groups().metric(),
                      {"seq_reward", "seq_final_reward", "acc"}});
  }
  return wanted;
}

// `whose`: "" or " of rows with data_source ...", for the message.
std::string DescribeLack(const WantedKey& wanted,
                         const std::string& whose,
                         std::set<std::string> keys) {
  keys.insert(wanted.always.begin(), wanted.always.end());
  const std::vector<std::string> scorers = ScorerNames();
  const bool could_be_term = std::count(scorers.begin(), scorers.end(), wanted.name) > 0;
  return fmt::format(
      "{}: the reward{} has no \"{}\"; it has {}: name one of these{}", wanted.config_key, whose,
      wanted.name, fmt::join(keys, ", "),
      could_be_term
          ? fmt::format(", or add a term {} to reward.terms", wanted.name)
          : std::string(", or what a term of reward.terms or a service of your own adds"));
}

}  // namespace

std::optional<std::set<std::string>> RewardKeys(const v1::Reward& config,
                                                const std::string& data_source) {
  std::string function = config.function();
  if (function == "remote") return std::nullopt;
  if (function == "auto") function = FunctionForDataSource(data_source).value_or("");
  if (function.empty()) return std::set<std::string>();
  std::set<std::string> keys = ExtraKeys(function);
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
  for (const WantedKey& wanted : WantedKeys(config.algorithm())) {
    for (const std::string& source : data_sources) {
      const auto keys = reward.Keys(source);
      if (!keys || keys->contains(wanted.name) || wanted.always.contains(wanted.name)) continue;
      const std::string whose =
          by_source ? fmt::format(" of rows with data_source \"{}\"", source) : std::string();
      problems.push_back(DescribeLack(wanted, whose, *keys));
      if (!by_source) break;  // equal for all sources
    }
  }
  if (problems.empty()) return absl::OkStatus();
  return InvalidArgument("{}", fmt::join(problems, "\n"));
}

void CheckRewardSection(const v1::Reward& config, ConfigProblems& problems) {
  const absl::Status function = CheckFunction(config);
  const bool remote = config.function() == "remote";
  const std::string key = remote ? "reward.service_address" : "reward.args";
  problems.Require(function.ok(), {key},
                   fmt::format("{}: {}", key, std::string(function.message())));
  CheckTerms(config, problems);
  if (!config.overlong_buffer().enable()) return;
  const v1::OverlongBuffer& buffer = config.overlong_buffer();
  const absl::Status penalty =
      OverlongPenalty::Create(config.max_resp_len(), buffer.len(), buffer.penalty_factor())
          .status();
  problems.Require(penalty.ok(), {"reward.overlong_buffer.len"},
                   fmt::format("reward.overlong_buffer.len: {}", std::string(penalty.message())));
}

void CheckReward(const v1::Config& config, ConfigProblems& problems) {
  CheckRewardSection(config.reward(), problems);
  std::set<std::string> sources = {""};
  if (config.reward().function() == "auto") sources = KnownDataSources();
  std::set<std::string> any;
  for (const std::string& source : sources) {
    const auto keys = RewardKeys(config.reward(), source);
    if (!keys) return;
    any.insert(keys->begin(), keys->end());
  }
  for (const WantedKey& wanted : WantedKeys(config.algorithm())) {
    problems.Require(any.contains(wanted.name) || wanted.always.contains(wanted.name),
                     {wanted.config_key}, DescribeLack(wanted, "", any));
  }
}

}  // namespace tandem
