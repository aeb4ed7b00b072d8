// A response as runs of tokens that one version of the weights sampled.
#pragma once

#include <cstdint>
#include <vector>

#include "common/types/trained_tokens.h"

namespace tandem {

// By Sample::versions and by what Sample::segments say is trained: neighbouring tokens of one
// version that are trained alike, in order. `begin` counts from the first token of the response, so
// that segments tile [0, response tokens). One version per response token is needed.
inline std::vector<Segment> ResponseSegments(const Sample& sample) {
  const std::vector<bool> trained = TrainedTokens(sample.segments, WindowOf(sample));
  std::vector<Segment> runs;
  for (size_t t = 0; t < sample.versions.size(); ++t) {
    const bool goes_on = !runs.empty() && runs.back().trained == trained[t] &&
                         runs.back().weight_version == sample.versions[t];
    if (!goes_on) {
      runs.push_back({.begin = static_cast<int64_t>(t),
                      .trained = trained[t],
                      .weight_version = sample.versions[t]});
    }
    ++runs.back().length;
  }
  return runs;
}

}  // namespace tandem
