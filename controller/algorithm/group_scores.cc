#include "controller/algorithm/group_scores.h"

#include <cmath>

namespace tandem {

ScoreStatistics StatisticsOf(const std::vector<float>& scores) {
  ScoreStatistics statistics;
  if (scores.size() < 2) return statistics;
  const auto count = static_cast<double>(scores.size());
  for (const float score : scores) statistics.mean += score;
  statistics.mean /= count;
  double squares = 0.0;
  for (const float score : scores) {
    squares += (score - statistics.mean) * (score - statistics.mean);
  }
  statistics.deviation = std::sqrt(squares / (count - 1.0));
  return statistics;
}

std::vector<float> ScoresOf(const AdvantageGroup& group) {
  std::vector<float> scores;
  scores.reserve(group.size());
  for (const AdvantageRow& row : group) scores.push_back(row.score);
  return scores;
}

std::vector<RowAdvantage> CentredScores(const AdvantageGroup& group, double factor) {
  const double mean = StatisticsOf(ScoresOf(group)).mean;
  std::vector<RowAdvantage> results(group.size());
  for (size_t i = 0; i < group.size(); ++i) results[i].value = factor * (group[i].score - mean);
  return results;
}

std::vector<float> GrpoAdvantages(const std::vector<float>& scores,
                                  GroupScale scale,
                                  double epsilon) {
  const ScoreStatistics statistics = StatisticsOf(scores);
  std::vector<float> advantages;
  advantages.reserve(scores.size());
  for (const float score : scores) {
    const double centred = score - statistics.mean;
    advantages.push_back(static_cast<float>(scale == GroupScale::kStandardDeviation
                                                ? centred / (statistics.deviation + epsilon)
                                                : centred));
  }
  return advantages;
}

}  // namespace tandem
