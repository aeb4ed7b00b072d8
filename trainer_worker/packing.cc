#include "trainer_worker/packing.h"

#include <algorithm>
#include <numeric>

#include "common/base/status_macros.h"

namespace tandem {
namespace {

absl::Status CheckSample(const Sample& sample, const PackingLimits& limits) {
  const auto tokens = static_cast<int64_t>(sample.tokens.size());
  if (tokens > limits.max_tokens) {
    return InvalidArgument(
        "sample {} has {} tokens, but a micro-batch holds actor.ppo_max_token_len_per_gpu = {}; "
        "raise that key to at least data.max_prompt_length + data.max_response_length",
        sample.sample_id, tokens, limits.max_tokens);
  }
  if (tokens > limits.max_sequence_tokens) {
    return InvalidArgument("sample {} has {} tokens, but rollout.max_model_len is {}",
                           sample.sample_id, tokens, limits.max_sequence_tokens);
  }
  if (sample.off_support && !limits.allow_off_support) {
    return InvalidArgument(
        "sample {} was drawn with top_p below 1 or with top_k, which leaves the policy's support; "
        "set "
        "rollout.top_p=1 and rollout.top_k=-1, or rollout.allow_off_support=true",
        sample.sample_id);
  }
  if (sample.prompt_tokens < 1 || sample.prompt_tokens > tokens) {
    return InvalidArgument("sample {} has {} tokens and claims a prompt of {}", sample.sample_id,
                           tokens, sample.prompt_tokens);
  }
  for (const Segment& segment : sample.segments) {
    if (segment.begin < 0 || segment.length < 0 || segment.begin + segment.length > tokens) {
      return InvalidArgument("sample {} has a segment [{}, {}) outside its {} tokens",
                             sample.sample_id, segment.begin, segment.begin + segment.length,
                             tokens);
    }
  }
  const auto bad = std::find_if(sample.tokens.begin(), sample.tokens.end(), [&](int32_t token) {
    return token < 0 || token >= limits.vocab_limit;
  });
  if (bad != sample.tokens.end()) {
    return InvalidArgument("sample {} holds token {}, but the vocabulary has {} ids",
                           sample.sample_id, *bad, limits.vocab_limit);
  }
  return absl::OkStatus();
}

// Which tokens are trained: those of trained segments, in the response.
std::vector<bool> TrainedTokens(const Sample& sample) {
  std::vector<bool> trained(sample.tokens.size(), false);
  for (const Segment& segment : sample.segments) {
    if (!segment.trained) continue;
    for (int64_t i = std::max(segment.begin, sample.prompt_tokens);
         i < segment.begin + segment.length; ++i) {
      trained[static_cast<size_t>(i)] = true;
    }
  }
  return trained;
}

void Append(const Sample& sample, int64_t index, PackedBatch& batch) {
  const int64_t first_row = batch.rows();
  const auto sequence = static_cast<int32_t>(batch.sequences.size());
  const auto rows = static_cast<int64_t>(sample.tokens.size());
  batch.sequences.push_back({.sample = index, .first_row = first_row, .rows = rows});
  batch.tokens.insert(batch.tokens.end(), sample.tokens.begin(), sample.tokens.end());
  const std::vector<bool> trained = TrainedTokens(sample);
  for (int64_t position = sample.prompt_tokens; position < rows; ++position) {
    if (!trained[static_cast<size_t>(position)]) continue;
    batch.scored_rows.push_back(static_cast<int32_t>(first_row + position - 1));
    batch.targets.push_back(sample.tokens[static_cast<size_t>(position)]);
    // Greedy samples record their log-probs at T = 1 (design: numerics contract 5).
    batch.temperatures.push_back(sample.temperature == 0.0f ? 1.0f : sample.temperature);
    batch.scored_sequence.push_back(sequence);
    batch.scored_response.push_back(static_cast<int32_t>(position - sample.prompt_tokens));
  }
}

}  // namespace

absl::StatusOr<std::vector<PackedBatch>> PackSamples(const std::vector<Sample>& samples,
                                                     const PackingLimits& limits) {
  std::vector<int64_t> order(samples.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return samples[static_cast<size_t>(a)].sample_id < samples[static_cast<size_t>(b)].sample_id;
  });
  std::vector<PackedBatch> batches;
  for (const int64_t index : order) {
    const Sample& sample = samples[static_cast<size_t>(index)];
    TANDEM_RETURN_IF_ERROR(CheckSample(sample, limits));
    const auto tokens = static_cast<int64_t>(sample.tokens.size());
    if (batches.empty() || batches.back().rows() + tokens > limits.max_tokens)
      batches.emplace_back();
    Append(sample, index, batches.back());
  }
  return batches;
}

}  // namespace tandem
