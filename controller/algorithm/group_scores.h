// Statistics of the scores of one group, shared by several estimators.
#pragma once

#include <vector>

#include "controller/algorithm/advantage_estimator.h"

namespace tandem {

// Computed in double, in the order given. A single score has mean 0 and deviation 1, as in verl.
struct ScoreStatistics {
  double mean = 0.0;
  double deviation = 1.0;  // with n - 1
};
ScoreStatistics StatisticsOf(const std::vector<float>& scores);

std::vector<float> ScoresOf(const AdvantageGroup& group);

// (score - mean of the group) * `factor` for every row.
std::vector<RowAdvantage> CentredScores(const AdvantageGroup& group, double factor = 1.0);

// G_t = sum over t' >= t of m_t' r_t', [row.tokens]. Reads rewards and mask.
inline std::vector<double> RewardsToGo(const AdvantageRow& row) {
  std::vector<double> sums(static_cast<size_t>(row.tokens));
  double running = 0;
  for (size_t t = sums.size(); t-- > 0;) {
    running += static_cast<double>(row.rewards[t]) * row.mask[t];
    sums[t] = running;
  }
  return sums;
}

// GRPO's group-relative advantage (Shao et al. 2024, DeepSeekMath, eq. 3; verl core_algos
// compute_grpo_outcome_advantage).
enum class GroupScale {
  kStandardDeviation,  // (s - mean) / (std + epsilon), std with n - 1
  kNone,               // s - mean (Dr. GRPO)
};

// One advantage per score of one group, the same for every response token. A group of one has mean
// 0 and standard deviation 1, as in verl. Computed in double and rounded to fp32, the trainer's
// dtype.
std::vector<float> GrpoAdvantages(const std::vector<float>& scores,
                                  GroupScale scale,
                                  double epsilon = 1e-6);

}  // namespace tandem
