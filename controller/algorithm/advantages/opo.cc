// opo: s - sum(length s) / sum(length) over the group, lengths in trained tokens (Hao et al. 2025,
// arXiv 2505.23585). The baseline is 0 for a group of one. A group of several without a trained
// token has none: as in verl its advantage is 0/0, not a number, which no token gets.
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
  const double baseline = group.size() > 1 ? weighted / length : 0.0;
  std::vector<RowAdvantage> results(group.size());
  for (size_t i = 0; i < group.size(); ++i) results[i].value = group[i].score - baseline;
  return results;
}

}  // namespace

extern const AdvantageEstimator kOpoEstimator = {.alone = "the score itself", .compute = Opo};

}  // namespace tandem
