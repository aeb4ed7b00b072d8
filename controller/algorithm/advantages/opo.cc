// opo: s - sum(length s) / sum(length) over the group, lengths in trained tokens (Hao et al. 2025,
// arXiv 2505.23585). A group of one has baseline 0. A group without a trained token has none
// either: verl divides 0 by 0 there, and masks the result.
#include "controller/algorithm/advantage_estimator.h"

namespace tandem {
namespace {

absl::StatusOr<std::vector<RowAdvantage>> Opo(const AdvantageGroup& group,
                                              const AdvantageOptions&,
                                              const BatchScores&) {
  double weighted = 0, length = 0;
  for (const AdvantageRow& row : group) {
    weighted += static_cast<double>(row.trained) * row.score;
    length += static_cast<double>(row.trained);
  }
  const double baseline = group.size() > 1 && length > 0 ? weighted / length : 0.0;
  std::vector<RowAdvantage> results(group.size());
  for (size_t i = 0; i < group.size(); ++i) results[i].value = group[i].score - baseline;
  return results;
}

}  // namespace

extern const AdvantageEstimator kOpoEstimator = {.alone = "the score itself", .compute = Opo};

}  // namespace tandem
