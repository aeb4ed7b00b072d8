// reinforce_plus_plus: A_t = sum over the trained tokens t' >= t of gamma^(t' - t) r_t', distances
// counted in trained tokens, whitened over the step (Hu 2025, arXiv 2501.03262). Returns are the
// sums before whitening.
// reinforce_plus_plus_baseline: s - mean of the group (s for a group of one), whitened over the
// step.
#include "controller/algorithm/advantage_estimator.h"
#include "controller/algorithm/group_scores.h"

namespace tandem {
namespace {

RowAdvantage DiscountedReturns(const AdvantageRow& row, double gamma) {
  RowAdvantage result;
  result.tokens.resize(static_cast<size_t>(row.tokens));
  double running = 0;
  for (size_t t = result.tokens.size(); t-- > 0;) {
    if (row.mask[t] == 0) continue;
    running = row.rewards[t] + gamma * running;
    result.tokens[t] = running;
  }
  result.returns = result.tokens;
  return result;
}

absl::StatusOr<std::vector<RowAdvantage>> ReinforcePlusPlus(const AdvantageGroup& group,
                                                            const AdvantageOptions& options,
                                                            const BatchScores&) {
  std::vector<RowAdvantage> results;
  for (const AdvantageRow& row : group) results.push_back(DiscountedReturns(row, options.gamma));
  return results;
}

absl::StatusOr<std::vector<RowAdvantage>> ReinforcePlusPlusBaseline(const AdvantageGroup& group,
                                                                    const AdvantageOptions&,
                                                                    const BatchScores&) {
  return CentredScores(group);
}

}  // namespace

extern const AdvantageEstimator kReinforcePlusPlusEstimator = {.needs = {.rewards = true},
                                                               .whitening = Whitening::kTrained,
                                                               .discounts = true,
                                                               .compute = ReinforcePlusPlus};

extern const AdvantageEstimator kReinforcePlusPlusBaselineEstimator = {
    .whitening = Whitening::kTrained,
    .alone = "the score, whitened over the step",
    .compute = ReinforcePlusPlusBaseline};

}  // namespace tandem
