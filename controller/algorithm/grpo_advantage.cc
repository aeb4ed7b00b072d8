#include "controller/algorithm/grpo_advantage.h"

#include <cmath>

namespace tandem {

std::vector<float> GrpoAdvantages(const std::vector<float>& scores, GroupScale scale) {
  double mean = 0.0, deviation = 1.0;
  if (scores.size() > 1) {
    const auto count = static_cast<double>(scores.size());
    for (const float score : scores) mean += score;
    mean /= count;
    double squares = 0.0;
    for (const float score : scores) squares += (score - mean) * (score - mean);
    deviation = std::sqrt(squares / (count - 1.0));
  }
  std::vector<float> advantages;
  advantages.reserve(scores.size());
  for (const float score : scores) {
    const double centred = score - mean;
    advantages.push_back(static_cast<float>(
        scale == GroupScale::kStandardDeviation ? centred / (deviation + 1e-6) : centred));
  }
  return advantages;
}

}  // namespace tandem
