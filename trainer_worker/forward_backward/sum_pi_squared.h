// Σ π(v)² over the vocabulary, which the optimal token baseline needs (verl: sum_pi_squared),
// without an op of its own: at half the temperature every x = logit / T is exactly twice as large,
// so that that row's statistics hold Σ exp(2x).
#pragma once

#include <vector>

#include "common/ops/row_stats.h"

namespace tandem {

// `at_half` is of the same row at T / 2 (RowStats of ForwardOps::TokenLogProbs). In (0, 1].
inline float SumPiSquared(const RowStats& at, const RowStats& at_half) {
  const double sum = at.sum;
  return static_cast<float>(static_cast<double>(at_half.sum) / (sum * sum));
}

// Half of each temperature; 0 is read as 1, as by the op.
inline std::vector<float> HalfTemperatures(const std::vector<float>& temperatures) {
  std::vector<float> halves;
  halves.reserve(temperatures.size());
  for (const float t : temperatures) halves.push_back(t == 0.0f ? 0.5f : 0.5f * t);
  return halves;
}

}  // namespace tandem
