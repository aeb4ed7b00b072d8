// Which tokens of a response losses and their denominators count.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/types/response_window.h"
#include "common/types/sample.h"

namespace tandem {

// [response tokens]: those of trained segments; without segments all. What a segment has outside
// the response does not count. (Sample::mask takes further tokens away.)
inline std::vector<bool> TrainedTokens(const std::vector<Segment>& segments,
                                       const ResponseWindow& window) {
  const auto responses = static_cast<size_t>(window.response_tokens);
  if (segments.empty()) return std::vector<bool>(responses, true);
  std::vector<bool> trained(responses, false);
  for (const Segment& segment : segments) {
    if (!segment.trained) continue;
    const int64_t begin = std::max<int64_t>(window.ResponseOf(segment.begin), 0);
    const int64_t end =
        std::min(window.ResponseOf(segment.begin + segment.length), window.response_tokens);
    for (int64_t i = begin; i < end; ++i) trained[static_cast<size_t>(i)] = true;
  }
  return trained;
}

// [response tokens]: those that losses, estimators and the rollout correction count, 1, else 0: the
// trained ones that `mask`, as Sample::mask (empty: all), leaves.
inline std::vector<float> CountedTokens(const std::vector<Segment>& segments,
                                        const ResponseWindow& window,
                                        const std::vector<float>& mask) {
  const std::vector<bool> trained = TrainedTokens(segments, window);
  std::vector<float> counted(trained.begin(), trained.end());
  for (size_t t = 0; t < mask.size(); ++t) counted[t] *= mask[t];
  return counted;
}
inline std::vector<float> CountedTokens(const Sample& sample) {
  return CountedTokens(sample.segments, WindowOf(sample), sample.mask);
}

}  // namespace tandem
