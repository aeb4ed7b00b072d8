// remax: A_t = G_t - b, G_t = sum over t' >= t of m_t' r_t', b = the reward of the greedy response
// to the same prompt (Li et al. 2023, arXiv 2310.10505). Returns are G. As in verl, a masked token
// before the end has advantage G_t, without the baseline.
#include "controller/algorithm/advantage_estimator.h"
#include "controller/algorithm/group_scores.h"

namespace tandem {
namespace {

absl::StatusOr<std::vector<RowAdvantage>> Remax(const AdvantageGroup& group,
                                                const AdvantageOptions&,
                                                const BatchScores&) {
  std::vector<RowAdvantage> results(group.size());
  for (size_t i = 0; i < group.size(); ++i) {
    const AdvantageRow& row = group[i];
    results[i].returns = RewardsToGo(row);
    results[i].tokens = results[i].returns;
    for (size_t t = 0; t < results[i].tokens.size(); ++t) {
      results[i].tokens[t] -= row.baseline * row.mask[t];
    }
  }
  return results;
}

}  // namespace

extern const AdvantageEstimator kRemaxEstimator = {.needs = {.rewards = true, .baseline = true},
                                                   .compute = Remax};

}  // namespace tandem
