// rloo, rloo_vectorized: the score minus the mean of the other responses of the group, which is n /
// (n - 1) * (s - mean) (Ahmadian et al. 2024, arXiv 2402.14740). verl's two functions disagree for
// a group of one, and each name keeps its value: rloo gives s, rloo_vectorized 0.
#include "controller/algorithm/advantage_estimator.h"
#include "controller/algorithm/group_scores.h"

namespace tandem {
namespace {

absl::StatusOr<std::vector<RowAdvantage>> Rloo(const AdvantageGroup& group,
                                               const AdvantageOptions&,
                                               const BatchScores&) {
  const auto count = static_cast<double>(group.size());
  return CentredScores(group, group.size() > 1 ? count / (count - 1.0) : 1.0);
}

absl::StatusOr<std::vector<RowAdvantage>> RlooVectorized(const AdvantageGroup& group,
                                                         const AdvantageOptions& options,
                                                         const BatchScores& batch) {
  if (group.size() < 2) return std::vector<RowAdvantage>(group.size());
  return Rloo(group, options, batch);
}

}  // namespace

extern const AdvantageEstimator kRlooEstimator = {.alone = "the score itself", .compute = Rloo};

extern const AdvantageEstimator kRlooVectorizedEstimator = {
    .alone = "0 for every sample (rloo gives the score itself)",
    .learns_alone = false,
    .compute = RlooVectorized};

}  // namespace tandem
