// Sums of rewards from a token to the end of its response.
#pragma once

#include <vector>

#include "controller/algorithm/advantage_estimator.h"

namespace tandem {

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

}  // namespace tandem
