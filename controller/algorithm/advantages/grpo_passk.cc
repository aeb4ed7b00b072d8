// grpo_passk: the best response of a group gets (s_best - s_second) / (std + 1e-6), all others 0
// (Tang et al. 2025, arXiv 2503.19595). With norm_adv_by_std_in_grpo=false there is no division.
// Not defined for a group of one.
#include <algorithm>

#include "common/base/status.h"
#include "controller/algorithm/advantage_estimator.h"
#include "controller/algorithm/group_scores.h"

namespace tandem {
namespace {

absl::StatusOr<std::vector<RowAdvantage>> GrpoPassk(const AdvantageGroup& group,
                                                    const AdvantageOptions& options,
                                                    const BatchScores&) {
  if (group.size() < 2) {
    return InvalidArgument(
        "grpo_passk compares the best response of a prompt with the second best, and there are {} "
        "of a prompt; raise rollout.n",
        group.size());
  }
  const std::vector<float> scores = ScoresOf(group);
  const auto best = std::max_element(scores.begin(), scores.end());
  std::vector<float> others(scores.begin(), best);
  others.insert(others.end(), best + 1, scores.end());
  double advantage = static_cast<double>(*best) - *std::max_element(others.begin(), others.end());
  if (options.by_std) advantage /= StatisticsOf(scores).deviation + options.epsilon.value_or(1e-6);
  std::vector<RowAdvantage> results(group.size());
  results[static_cast<size_t>(best - scores.begin())].value = advantage;
  return results;
}

}  // namespace

extern const AdvantageEstimator kGrpoPasskEstimator = {
    .alone = "not defined, as there is no second best sample",
    .learns_alone = false,
    .compute = GrpoPassk};

}  // namespace tandem
