#include "common/config/advantage_rules.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

constexpr std::string_view kScore = "the score itself";
constexpr std::string_view kWhitened = "the score, whitened over the step";
constexpr std::string_view kReturn = "the reward to go itself";

constexpr std::array kRules = {
    AdvantageRule{.name = "grpo", .alone = kScore},
    AdvantageRule{.name = "grpo_vectorized", .alone = kScore},
    AdvantageRule{.name = "grpo_passk",
                  .alone = "not defined, as there is no second best sample",
                  .learns_alone = false},
    AdvantageRule{.name = "gdpo",
                  .alone = "the weighted sum of the rewards, whitened over the step"},
    AdvantageRule{.name = "gae",
                  .discounts = true,
                  .bootstraps = true,
                  .refused = "needs the values of a critic, and there is no critic yet"},
    AdvantageRule{.name = "rloo", .alone = kScore},
    AdvantageRule{.name = "rloo_vectorized",
                  .alone = "0 for every sample (rloo gives the score itself)",
                  .learns_alone = false},
    AdvantageRule{.name = "reinforce_plus_plus", .discounts = true},
    AdvantageRule{.name = "reinforce_plus_plus_baseline", .alone = kWhitened},
    AdvantageRule{.name = "remax"},
    AdvantageRule{.name = "opo", .alone = kScore},
    AdvantageRule{.name = "gpg",
                  .alone = "the score, divided by the share of scores that are not 0"},
    AdvantageRule{.name = "optimal_token_baseline", .alone = kReturn},
    AdvantageRule{.name = "tir_optimal_token_baseline", .alone = kReturn},
};

const AdvantageRule* FindRule(const std::string& name) {
  const auto* rule =
      std::find_if(kRules.begin(), kRules.end(),
                   [&name](const AdvantageRule& known) { return known.name == name; });
  return rule == kRules.end() ? nullptr : rule;
}

std::string NamesWhere(bool AdvantageRule::*property) {
  std::vector<std::string_view> names;
  for (const AdvantageRule& rule : kRules) {
    if (rule.*property && rule.refused.empty()) names.push_back(rule.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string UsableNames() {
  std::vector<std::string_view> names;
  for (const AdvantageRule& rule : kRules) {
    if (rule.refused.empty()) names.push_back(rule.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

void CheckFactors(const v1::Algorithm& algorithm,
                  const AdvantageRule& rule,
                  std::vector<KeyProblem>& problems) {
  if (algorithm.gamma() != 1 && !rule.discounts) {
    problems.push_back(
        {{"algorithm.gamma", "algorithm.adv_estimator"},
         fmt::format("algorithm.gamma is {}, and {} does not discount: set it to 1, or "
                     "algorithm.adv_estimator to one of {}",
                     algorithm.gamma(), rule.name, NamesWhere(&AdvantageRule::discounts))});
  }
  if (algorithm.lam() != 1 && !rule.bootstraps) {
    problems.push_back({{"algorithm.lam", "algorithm.adv_estimator"},
                        fmt::format("algorithm.lam is {}, and {} does not bootstrap: set it to 1",
                                    algorithm.lam(), rule.name)});
  }
}

void CheckGdpoKeys(const v1::Algorithm& algorithm, std::vector<KeyProblem>& problems) {
  const auto& keys = algorithm.gdpo_reward_keys();
  const auto& weights = algorithm.gdpo_reward_weights();
  if (algorithm.adv_estimator() != "gdpo") {
    if (keys.empty() && weights.empty()) return;
    problems.push_back(
        {{"algorithm.gdpo_reward_keys", "algorithm.gdpo_reward_weights", "algorithm.adv_estimator"},
         fmt::format("algorithm.gdpo_reward_keys and algorithm.gdpo_reward_weights are for gdpo, "
                     "and algorithm.adv_estimator is {}: leave them out",
                     algorithm.adv_estimator())});
    return;
  }
  if (keys.empty()) {
    problems.push_back({{"algorithm.gdpo_reward_keys"},
                        "gdpo needs algorithm.gdpo_reward_keys, such as [score, format]"});
  }
  if (std::set<std::string>(keys.begin(), keys.end()).size() != static_cast<size_t>(keys.size())) {
    problems.push_back({{"algorithm.gdpo_reward_keys"},
                        "algorithm.gdpo_reward_keys names a key twice; give it a weight instead"});
  }
  if (!weights.empty() && weights.size() != keys.size()) {
    problems.push_back({{"algorithm.gdpo_reward_weights", "algorithm.gdpo_reward_keys"},
                        fmt::format("algorithm.gdpo_reward_weights has {} numbers for {} "
                                    "algorithm.gdpo_reward_keys; give one each, or none",
                                    weights.size(), keys.size())});
  }
  if (!std::all_of(weights.begin(), weights.end(), [](double w) { return std::isfinite(w); })) {
    problems.push_back({{"algorithm.gdpo_reward_weights"},
                        "algorithm.gdpo_reward_weights holds a number that is not finite"});
  }
  if (algorithm.use_kl_in_reward()) {
    problems.push_back({{"algorithm.use_kl_in_reward", "algorithm.adv_estimator"},
                        "algorithm.use_kl_in_reward changes the reward, and gdpo reads the values "
                        "it is made of: set it to false, and actor.use_kl_loss to true for a KL "
                        "term in the loss"});
  }
}

}  // namespace

std::span<const AdvantageRule> AdvantageRules() { return kRules; }

std::vector<KeyProblem> AdvantageProblems(const v1::Config& config) {
  const v1::Algorithm& algorithm = config.algorithm();
  const std::string& name = algorithm.adv_estimator();
  std::vector<KeyProblem> problems;
  const AdvantageRule* rule = FindRule(name);
  if (rule == nullptr) return problems;  // the key's choices have refused it
  if (!rule->refused.empty()) {
    problems.push_back({{"algorithm.adv_estimator"},
                        fmt::format("algorithm.adv_estimator={} {}; runs can use {}", name,
                                    rule->refused, UsableNames())});
  }
  if (!rule->learns_alone && config.rollout().n() < 2) {
    problems.push_back(
        {{"rollout.n", "algorithm.adv_estimator"},
         fmt::format("rollout.n is {}: {} compares the samples of a prompt, and the advantage of "
                     "one alone is {}, so that nothing could be learned; raise rollout.n to at "
                     "least 2, or choose another algorithm.adv_estimator",
                     config.rollout().n(), name, rule->alone)});
  }
  CheckFactors(algorithm, *rule, problems);
  CheckGdpoKeys(algorithm, problems);
  return problems;
}

std::vector<std::string> AdvantageNotices(const v1::Config& config, const ConfigOrigins& origins) {
  const AdvantageRule* rule = FindRule(config.algorithm().adv_estimator());
  const auto origin = origins.find("rollout.n");
  if (rule == nullptr || rule->alone.empty() || !rule->learns_alone || config.rollout().n() > 1 ||
      origin == origins.end()) {
    return {};
  }
  return {fmt::format(
      "{}: rollout.n is 1: {} has no other samples of a prompt to compare with, and its advantage "
      "is {}; raise rollout.n for a baseline",
      origin->second, rule->name, rule->alone)};
}

}  // namespace tandem
