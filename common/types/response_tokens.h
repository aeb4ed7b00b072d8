// Response tokens: the rows of a model's output that score them, which of them are trained, and
// which weight versions sampled them. The output row of position i predicts the token at position i
// + 1, so a response of r tokens after a prompt of p tokens is scored by the r rows from p - 1 on.
// All conversions between tokens and rows use ResponseWindow.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <absl/status/status.h>

#include "common/base/status.h"
#include "common/types/sample.h"

namespace tandem {

struct ResponseWindow {
  int64_t prompt_tokens = 1;  // at least 1: the first response token needs a row before it
  int64_t response_tokens = 0;

  // The position in the sequence of response token `response`.
  constexpr int64_t TokenOf(int64_t response) const { return prompt_tokens + response; }
  // The row that scores response token `response`.
  constexpr int64_t RowOf(int64_t response) const { return TokenOf(response) - 1; }
  // The response token at position `token`, negative for one of the prompt.
  constexpr int64_t ResponseOf(int64_t token) const { return token - prompt_tokens; }
};

// Requires a prompt, which all samples in a SampleStore or a micro-batch have.
inline ResponseWindow WindowOf(const Sample& sample) {
  return {sample.prompt_tokens, sample.response_tokens()};
}

// [response tokens]: whether a token is in a trained segment; all are if there are no segments. The
// part of a segment outside the response is ignored. (Sample::mask removes further tokens.)
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

// [response tokens]: 1 for tokens that losses, estimators and the rollout correction count, else 0.
// These are the trained tokens that `mask` (Sample::mask; empty: all) keeps.
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

// Divides a response into runs of tokens that one weight version sampled (Sample::versions) and
// that are all trained or all not (Sample::segments), in order. `begin` counts from the first token
// of the response, and the runs tile [0, response tokens). Requires one version per response token.
inline std::vector<Segment> ResponseSegments(const Sample& sample) {
  const std::vector<bool> trained = TrainedTokens(sample.segments, WindowOf(sample));
  std::vector<Segment> runs;
  for (size_t t = 0; t < sample.versions.size(); ++t) {
    const bool continues = !runs.empty() && runs.back().trained == trained[t] &&
                           runs.back().weight_version == sample.versions[t];
    if (!continues) {
      runs.push_back({.begin = static_cast<int64_t>(t),
                      .trained = trained[t],
                      .weight_version = sample.versions[t]});
    }
    ++runs.back().length;
  }
  return runs;
}

// DataLoss unless `log_prob` of response token `response`, computed by `who` ("rollout",
// "trainer"), is finite; names sample, position and weight version. A NaN or infinite log-prob
// means that weights or computation are broken, and the sample must not be trained on. (The
// comparison of rollout and trainer does not detect this, as NaN equals NaN bit for bit.)
inline absl::Status CheckFiniteLogProb(const Sample& sample,
                                       int64_t response,
                                       float log_prob,
                                       const char* who) {
  if (std::isfinite(log_prob)) return absl::OkStatus();
  const auto at = static_cast<size_t>(response);
  return MakeStatus(
      absl::StatusCode::kDataLoss,
      "the log-prob of a sampled token is {}, not finite: sample {:#x}, position {}, weight "
      "version {}, in the {}. Model or weights are broken: check the files in model.path, or "
      "resume "
      "from an earlier checkpoint with a smaller actor.optim.lr",
      std::isnan(log_prob) ? "nan" : "infinite",  // the sign of a NaN means nothing
      sample.sample_id, sample.prompt_tokens + response,
      at < sample.versions.size() ? fmt::format("{}", sample.versions[at]) : "?", who);
}

}  // namespace tandem
