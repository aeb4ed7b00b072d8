#include "controller/reward/check_reward.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/status.h"
#include "controller/reward/data_sources.h"
#include "controller/reward/overlong.h"
#include "controller/reward/scorer_registry.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

// reward.function=auto picks by row: the arguments must suit one of the functions at least.
absl::Status CheckArgsOfAuto(const std::string& args) {
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
  if (config.function() == "auto") return CheckArgsOfAuto(config.args());
  if (config.function() != "remote") return MakeScorer(config.function(), config.args()).status();
  if (!config.service_address().empty()) return absl::OkStatus();
  return InvalidArgument(
      "reward.function is remote but reward.service_address is empty: name the RewardService, e.g. "
      "127.0.0.1:7000");
}

}  // namespace

absl::Status CheckReward(const v1::Reward& config, const ConfigOrigins& origins) {
  std::vector<std::string> problems;
  const auto note = [&](const std::string& key, const absl::Status& status) {
    if (status.ok()) return;
    const auto origin = origins.find(key.substr(0, key.find('[')));
    problems.push_back(fmt::format("{}{}: {}", key,
                                   origin == origins.end() ? "" : " at " + origin->second,
                                   std::string(status.message())));
  };
  const bool named = config.function() == "remote";
  note(named ? "reward.service_address" : "reward.args", CheckFunction(config));
  for (int i = 0; i < config.terms_size(); ++i) {
    const v1::RewardTerm& term = config.terms(i);
    const std::string key = fmt::format("reward.terms[{}]", i);
    note(key, MakeScorer(term.name(), term.args()).status());
    for (int other = 0; other < i; ++other) {
      if (config.terms(other).name() != term.name()) continue;
      note(key, InvalidArgument("there is a term {} already, and values are told apart by name; "
                                "make one of the two, as with one pattern for both",
                                term.name()));
      break;
    }
  }
  if (config.overlong_buffer().enable()) {
    const v1::OverlongBuffer& buffer = config.overlong_buffer();
    note("reward.overlong_buffer.len",
         OverlongPenalty::Create(config.max_resp_len(), buffer.len(), buffer.penalty_factor())
             .status());
  }
  if (problems.empty()) return absl::OkStatus();
  return InvalidArgument("{}", fmt::join(problems, "\n"));
}

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
