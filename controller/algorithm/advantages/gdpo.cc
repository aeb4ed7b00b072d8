// gdpo: GRPO on each reward key separately, and the weighted sum of the results, whitened over the
// step's trained tokens (Liu et al. 2026, arXiv 2601.05242). The score is not used.
#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include <fmt/format.h>

#include "common/base/status.h"
#include "common/config/check.h"
#include "controller/algorithm/advantage_estimator.h"
#include "controller/algorithm/group_scores.h"
#include "tandem/v1/config.pb.h"

namespace tandem {
namespace {

absl::StatusOr<std::vector<RowAdvantage>> Gdpo(const AdvantageGroup& group,
                                               const AdvantageOptions& options,
                                               const BatchScores&) {
  std::vector<RowAdvantage> results(group.size());
  const size_t keys = group.empty() ? 0 : group.front().components.size();
  if (!options.component_weights.empty() && options.component_weights.size() != keys) {
    return InvalidArgument("gdpo has {} weights for {} reward keys",
                           options.component_weights.size(), keys);
  }
  const GroupScale scale = options.by_std ? GroupScale::kStandardDeviation : GroupScale::kNone;
  for (size_t key = 0; key < keys; ++key) {
    std::vector<float> scores;
    for (const AdvantageRow& row : group) scores.push_back(row.components.at(key));
    const double weight = options.component_weights.empty() ? 1.0 : options.component_weights[key];
    const std::vector<float> advantages =
        GrpoAdvantages(scores, scale, options.epsilon.value_or(1e-6));
    for (size_t i = 0; i < group.size(); ++i) results[i].value += weight * advantages[i];
  }
  return results;
}

void CheckGdpo(const v1::Config& config, ConfigProblems& problems) {
  const v1::Algorithm& algorithm = config.algorithm();
  const auto& keys = algorithm.gdpo_reward_keys();
  const auto& weights = algorithm.gdpo_reward_weights();
  problems.Require(!keys.empty(), {"algorithm.gdpo_reward_keys"},
                   "gdpo needs algorithm.gdpo_reward_keys, such as [score, format]");
  const std::set<std::string> unique(keys.begin(), keys.end());
  problems.Require(unique.size() == static_cast<size_t>(keys.size()),
                   {"algorithm.gdpo_reward_keys"},
                   "algorithm.gdpo_reward_keys names a key twice; give it a weight instead");
  problems.Require(weights.empty() || weights.size() == keys.size(),
                   {"algorithm.gdpo_reward_weights", "algorithm.gdpo_reward_keys"},
                   fmt::format("algorithm.gdpo_reward_weights has {} numbers for {} "
                               "algorithm.gdpo_reward_keys; give one each, or none",
                               weights.size(), keys.size()));
  problems.Require(
      std::all_of(weights.begin(), weights.end(), [](double w) { return std::isfinite(w); }),
      {"algorithm.gdpo_reward_weights"},
      "algorithm.gdpo_reward_weights holds a number that is not finite");
  problems.Require(!algorithm.use_kl_in_reward(),
                   {"algorithm.use_kl_in_reward", "algorithm.adv_estimator"},
                   "algorithm.use_kl_in_reward changes the reward, and gdpo reads the values it is "
                   "made of: set it to false, and actor.use_kl_loss to true for a KL term in the "
                   "loss");
}

}  // namespace

extern const AdvantageEstimator kGdpoEstimator = {
    .needs = {.components = true},
    .whitening = Whitening::kTrained,
    .alone = "the weighted sum of the rewards, whitened over the step",
    .check = CheckGdpo,
    .compute = Gdpo};

}  // namespace tandem
