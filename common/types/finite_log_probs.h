// The log-prob of a sampled token that is NaN or infinite: weights or computation are broken, and
// nothing may be trained on it. (NaN equals NaN bit for bit, so a comparison does not see it.)
#pragma once

#include <cmath>
#include <cstdint>

#include <absl/status/status.h>

#include "common/base/status_macros.h"
#include "common/types/sample.h"

namespace tandem {

// DataLoss naming sample, position and weight version, unless `log_prob` of response token
// `response`, as computed by `who` ("rollout", "trainer"), is finite.
inline absl::Status CheckFiniteLogProb(const Sample& sample,
                                       int64_t response,
                                       float log_prob,
                                       const char* who) {
  if (std::isfinite(log_prob)) return absl::OkStatus();
  const auto at = static_cast<size_t>(response);
  return MakeStatus(
      absl::StatusCode::kDataLoss,
      "the log-prob of a sampled token is {}, not finite: sample {:#x}, position {}, weight "
      "version {}, in the {}. Model or weights are broken: check the files in model.path, or go "
      "back to an earlier checkpoint with a smaller actor.optim.lr",
      std::isnan(log_prob) ? "nan" : "infinite",  // the sign of a NaN means nothing
      sample.sample_id, sample.prompt_tokens + response,
      at < sample.versions.size() ? fmt::format("{}", sample.versions[at]) : "?", who);
}

// The same of all its response tokens, as they came with it.
inline absl::Status CheckFiniteLogProbs(const Sample& sample, const char* who) {
  for (size_t i = 0; i < sample.log_probs.size(); ++i) {
    TANDEM_RETURN_IF_ERROR(
        CheckFiniteLogProb(sample, static_cast<int64_t>(i), sample.log_probs[i], who));
  }
  return absl::OkStatus();
}

}  // namespace tandem
