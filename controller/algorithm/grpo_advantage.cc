#include "controller/algorithm/grpo_advantage.h"

#include "controller/algorithm/group_scores.h"

namespace tandem {

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
