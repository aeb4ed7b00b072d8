// One response as the rollout correction sees it: what the trainers and what the rollout thought of
// each of its tokens.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "common/base/rounded_exp.h"

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

// 0 over nothing.
inline double MeanOf(double sum, double count) { return count > 0 ? sum / count : 0.0; }

}  // namespace tandem
