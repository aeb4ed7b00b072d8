// Scores of one group, as several estimators need them.
#pragma once

#include <vector>

#include "controller/algorithm/advantage_estimator.h"

namespace tandem {

// In double, in the order given. Of one score: mean 0 and deviation 1, as in verl.
struct ScoreStatistics {
  double mean = 0.0;
  double deviation = 1.0;  // with n - 1
};
ScoreStatistics StatisticsOf(const std::vector<float>& scores);

std::vector<float> ScoresOf(const AdvantageGroup& group);

// score - mean of the group for every row, times `factor`.
std::vector<RowAdvantage> CentredScores(const AdvantageGroup& group, double factor = 1.0);

}  // namespace tandem
