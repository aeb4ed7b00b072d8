// One response for the rollout correction: the log-probs of its tokens under the trainers and under
// the rollout.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "common/base/numeric.h"

namespace tandem {

// Views into the caller's arrays, one entry per response token.
struct LogProbRow {
  std::span<const float> policy;   // log-probs under the policy that is trained; verl: old_log_prob
  std::span<const float> rollout;  // log-probs that came with the tokens
  std::span<const float> mask;     // 0: the token does not count; empty: all count

  size_t size() const { return policy.size(); }
  bool counts(size_t t) const { return mask.empty() || mask[t] != 0; }
  // log(policy / rollout), in float32 as the losses subtract. Not clamped.
  float log_ratio(size_t t) const { return policy[t] - rollout[t]; }
};

// Bound of |log ratio| before it is exponentiated: e^20 is 4.9e8.
inline constexpr float kLogRatioBound = 20.0f;

inline float ClampLogRatio(float log_ratio) {
  return std::clamp(log_ratio, -kLogRatioBound, kLogRatioBound);
}

// 0 if the count is 0.
inline double MeanOf(double sum, double count) { return count > 0 ? sum / count : 0.0; }

// Mean, deviation and range of values that are seen once. B. P. Welford, Note on a method for
// calculating corrected sums of squares and products, Technometrics 4 (1962). In double, so that
// the order of the values affects only the last bits.
struct Moments {
  int64_t count = 0;
  double mean = 0;
  double squares = 0;  // sum of (x - mean)^2
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();

  void Add(double x) {
    ++count;
    const double before = x - mean;
    mean += before / static_cast<double>(count);
    squares += before * (x - mean);
    min = std::min(min, x);
    max = std::max(max, x);
  }
  // With n - 1; 0 for fewer than two values.
  double StandardDeviation() const {
    return count > 1 ? std::sqrt(squares / static_cast<double>(count - 1)) : 0.0;
  }
};

}  // namespace tandem
