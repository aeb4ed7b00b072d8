#include "rollout_worker/generation/sequence.h"

namespace tandem {
namespace {

void GoOnFrom(const Continuation& continuation, Sequence* sequence) {
  sequence->tokens.insert(sequence->tokens.end(), continuation.tokens.begin(),
                          continuation.tokens.end());
  sequence->log_probs = continuation.log_probs;
  sequence->versions = continuation.versions;
  sequence->carried = static_cast<int64_t>(continuation.tokens.size());
}

}  // namespace

std::unique_ptr<SequenceGroup> MakeSequenceGroup(const std::vector<int32_t>& prompt,
                                                 const std::vector<uint64_t>& sample_ids,
                                                 const SamplingParams& params,
                                                 const std::vector<Continuation>& continued) {
  auto group = std::make_unique<SequenceGroup>();
  group->prompt_tokens = static_cast<int64_t>(prompt.size());
  group->params = params;
  for (const uint64_t sample_id : sample_ids) {
    auto sequence = std::make_unique<Sequence>();
    sequence->group = group.get();
    sequence->index = static_cast<int64_t>(group->sequences.size());
    sequence->sample_id = sample_id;
    sequence->tokens = prompt;
    const size_t index = group->sequences.size();
    if (!continued.empty()) GoOnFrom(continued[index], sequence.get());
    group->sequences.push_back(std::move(sequence));
  }
  return group;
}

Sample MakeSample(const Sequence& sequence) {
  const SequenceGroup& group = *sequence.group;
  Sample sample;
  sample.sample_id = sequence.sample_id;
  sample.group = group.group;
  sample.index = sequence.index;
  sample.tokens = sequence.tokens;
  sample.prompt_tokens = group.prompt_tokens;
  sample.log_probs = sequence.log_probs;
  sample.versions = sequence.versions;
  sample.finish_reason = sequence.finish_reason;
  sample.temperature = group.params.temperature > 0.0f ? group.params.temperature : 1.0f;
  sample.off_support = group.params.filtered();
  sample.segments.push_back({0, group.prompt_tokens, false, 0});
  for (size_t i = 0; i < sequence.versions.size(); ++i) {
    const bool extends = sample.segments.back().trained &&
                         sample.segments.back().weight_version == sequence.versions[i];
    if (!extends) {
      sample.segments.push_back(
          {group.prompt_tokens + static_cast<int64_t>(i), 0, true, sequence.versions[i]});
    }
    ++sample.segments.back().length;
  }
  return sample;
}

}  // namespace tandem
