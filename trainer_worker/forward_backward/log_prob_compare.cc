#include "trainer_worker/forward_backward/log_prob_compare.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tandem {
namespace {

constexpr size_t kShownMismatches = 5;

double Difference(const LogProbMismatch& mismatch) {
  return std::abs(static_cast<double>(mismatch.rollout) - mismatch.trainer);
}

}  // namespace

void CompareLogProbs(const PackedBatch& batch,
                     const std::vector<Sample>& samples,
                     const std::vector<float>& log_probs,
                     int64_t version,
                     LogProbComparison& comparison) {
  for (size_t i = 0; i < log_probs.size(); ++i) {
    const Sample& sample = ScoredSample(batch, samples, i);
    const auto response = static_cast<size_t>(batch.scored_response[i]);
    if (sample.versions[response] < version) continue;
    const float rollout = sample.log_probs[response];
    ++comparison.compared;
    comparison.probabilities.Add(log_probs[i], rollout);
    if (std::bit_cast<uint32_t>(rollout) == std::bit_cast<uint32_t>(log_probs[i])) {
      ++comparison.identical;
      continue;
    }
    const double difference = std::abs(static_cast<double>(rollout) - log_probs[i]);
    comparison.max_abs_difference = std::max(comparison.max_abs_difference, difference);
    comparison.sum_abs_difference += difference;
    const auto place = std::find_if(
        comparison.mismatches.begin(), comparison.mismatches.end(),
        [&](const LogProbMismatch& other) { return !(Difference(other) >= difference); });
    comparison.mismatches.insert(place,
                                 {.sample_id = sample.sample_id,
                                  .position = sample.prompt_tokens + batch.scored_response[i],
                                  .weight_version = sample.versions[response],
                                  .rollout = rollout,
                                  .trainer = log_probs[i]});
    if (comparison.mismatches.size() > kShownMismatches) comparison.mismatches.pop_back();
  }
}

}  // namespace tandem
