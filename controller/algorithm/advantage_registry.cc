#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/status.h"
#include "common/config/check.h"
#include "common/config/config.h"
#include "common/config/rollout_rules.h"
#include "controller/algorithm/advantage_estimator.h"
#include "tandem/v1/config.pb.h"

namespace tandem {

#define TANDEM_REGISTERED(symbol, name) extern const AdvantageEstimator symbol;
#include "advantage_estimators.inc"
#undef TANDEM_REGISTERED

namespace {

struct NamedEstimator {
  const char* name;
  const AdvantageEstimator* estimator;
};

constexpr NamedEstimator kEstimators[] = {
#define TANDEM_REGISTERED(symbol, name) {name, &symbol},
#include "advantage_estimators.inc"
#undef TANDEM_REGISTERED
};

// Null: there is no such estimator.
const NamedEstimator* FindEntry(const std::string& name) {
  for (const NamedEstimator& known : kEstimators) {
    if (name == known.name) return &known;
  }
  return nullptr;
}

// The names of usable estimators that `include` accepts, joined with commas.
std::string JoinNames(bool (*include)(const AdvantageEstimator&)) {
  std::vector<std::string_view> names;
  for (const NamedEstimator& known : kEstimators) {
    if (known.estimator->compute != nullptr && include(*known.estimator)) {
      names.emplace_back(known.name);
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string UsableNames() {
  return JoinNames([](const AdvantageEstimator&) { return true; });
}

void CheckSamplesPerPrompt(const v1::Config& config,
                           const AdvantageEstimator& estimator,
                           ConfigProblems& problems) {
  if (config.rollout().n() > 1) return;
  const std::string& name = config.algorithm().adv_estimator();
  problems.Require(
      estimator.learns_alone, {"rollout.n", "algorithm.adv_estimator"},
      fmt::format("rollout.n is {}: {} compares the samples of a prompt, and the advantage of one "
                  "alone is {}, so that nothing could be learned; raise rollout.n to at least 2, "
                  "or choose another algorithm.adv_estimator",
                  config.rollout().n(), name, estimator.alone));
  if (!estimator.learns_alone || estimator.alone.empty()) return;
  problems.Notice("rollout.n",
                  fmt::format("rollout.n is 1: {} has no other samples of a prompt to compare "
                              "with, and its advantage is {}; raise rollout.n for a baseline",
                              name, estimator.alone));
}

void CheckDiscount(const v1::Algorithm& algorithm,
                   const AdvantageEstimator& estimator,
                   ConfigProblems& problems) {
  const std::string& name = algorithm.adv_estimator();
  problems.Require(
      algorithm.gamma() == 1 || estimator.discounts, {"algorithm.gamma", "algorithm.adv_estimator"},
      fmt::format("algorithm.gamma is {}, and {} does not discount: set it to 1, or "
                  "algorithm.adv_estimator to one of {}",
                  algorithm.gamma(), name,
                  JoinNames([](const AdvantageEstimator& known) { return known.discounts; })));
  problems.Require(algorithm.lam() == 1 || estimator.bootstraps,
                   {"algorithm.lam", "algorithm.adv_estimator"},
                   fmt::format("algorithm.lam is {}, and {} does not bootstrap: set it to 1",
                               algorithm.lam(), name));
}

// Checks that other keys provide the estimator's inputs, and that keys that only some estimators
// read are set only for those.
void CheckInputs(const v1::Config& config,
                 const AdvantageEstimator& estimator,
                 ConfigProblems& problems) {
  const v1::Algorithm& algorithm = config.algorithm();
  const std::string& name = algorithm.adv_estimator();
  problems.Require(
      estimator.needs.components ||
          (algorithm.gdpo_reward_keys().empty() && algorithm.gdpo_reward_weights().empty()),
      {"algorithm.gdpo_reward_keys", "algorithm.gdpo_reward_weights", "algorithm.adv_estimator"},
      fmt::format("algorithm.gdpo_reward_keys and algorithm.gdpo_reward_weights are for gdpo, and "
                  "algorithm.adv_estimator is {}: leave them out",
                  name));
  problems.Require(
      !estimator.needs.policy || NeedsSumPiSquared(config),
      {"algorithm.adv_estimator", "actor.calculate_sum_pi_squared"},
      fmt::format("algorithm.adv_estimator={} reads sums of squared probabilities; set "
                  "actor.calculate_sum_pi_squared=true",
                  name));
  problems.Require(
      !estimator.needs.baseline || !TrainsOlderTokens(config),
      {"algorithm.adv_estimator", "rollout.partial.max_tokens_per_round",
       "rollout.partial.until_groups", "rollout.partial.round_seconds", "rollout.partial.overlap",
       "algorithm.partial_rollout_max_split", "trainer.off_policy_steps"},
      fmt::format(
          "algorithm.adv_estimator={} compares a sample with a greedy response of the same "
          "weights, and with rollout.partial or trainer.off_policy_steps a sample has tokens of "
          "others; choose another estimator, such as rloo, or leave these keys out",
          name));
}

}  // namespace

absl::StatusOr<AdvantageEstimator> FindAdvantageEstimator(const std::string& name) {
  const NamedEstimator* known = FindEntry(name);
  if (known == nullptr || known->estimator->compute == nullptr) {
    return InvalidArgument("there is no advantage estimator {}; use one of {}", name,
                           UsableNames());
  }
  AdvantageEstimator found = *known->estimator;
  found.name = known->name;
  return found;
}

std::vector<std::string> AdvantageEstimatorNames() {
  std::vector<std::string> names;
  for (const NamedEstimator& known : kEstimators) {
    if (known.estimator->compute != nullptr) names.emplace_back(known.name);
  }
  return names;
}

void CheckAdvantageEstimator(const v1::Config& config, ConfigProblems& problems) {
  const v1::Algorithm& algorithm = config.algorithm();
  const NamedEstimator* known = FindEntry(algorithm.adv_estimator());
  if (known == nullptr) return;  // loading has refused the unknown name already
  const AdvantageEstimator* estimator = known->estimator;
  problems.Require(estimator->compute != nullptr, {"algorithm.adv_estimator"},
                   fmt::format("algorithm.adv_estimator={} {}; runs can use {}",
                               algorithm.adv_estimator(), estimator->unavailable, UsableNames()));
  CheckSamplesPerPrompt(config, *estimator, problems);
  CheckDiscount(algorithm, *estimator, problems);
  CheckInputs(config, *estimator, problems);
  if (estimator->check != nullptr) estimator->check(config, problems);
}

}  // namespace tandem
