// gpg: alpha (s - mean), alpha = samples of the step / samples with a score other than 0 (Chu et
// al. 2025, arXiv 2504.02546, with its F_norm = 1). A group of one has mean 0. If all scores are 0,
// alpha is the number of samples, and all advantages are 0.
#include <algorithm>

#include "controller/algorithm/advantage_estimator.h"
#include "controller/algorithm/group_scores.h"

namespace tandem {
namespace {

absl::StatusOr<std::vector<RowAdvantage>> Gpg(const AdvantageGroup& group,
                                              const AdvantageOptions&,
                                              const BatchScores& batch) {
  const auto scored = static_cast<double>(std::max<int64_t>(1, batch.nonzero));
  return CentredScores(group, static_cast<double>(batch.samples) / scored);
}

}  // namespace

extern const AdvantageEstimator kGpgEstimator = {
    .alone = "the score, divided by the share of scores that are not 0", .compute = Gpg};

}  // namespace tandem
