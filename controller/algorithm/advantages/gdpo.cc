// gdpo: GRPO on each reward key by itself, the weighted sum of these, whitened over the step's
// trained tokens (Liu et al. 2026, arXiv 2601.05242). The score is not read.
#include "common/base/status.h"
#include "controller/algorithm/advantages/estimators.h"
#include "controller/algorithm/group_scores.h"

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

}  // namespace

AdvantageEstimator GdpoEstimator() {
  return {.name = "gdpo",
          .needs = {.components = true},
          .whitening = Whitening::kTrained,
          .compute = Gdpo};
}

}  // namespace tandem
