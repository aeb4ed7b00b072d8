#include "rollout_worker/generation/sequence.h"

#include <algorithm>

namespace tandem {
namespace {

void AppendContinuation(const Continuation& continuation, Sequence* sequence) {
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
    if (!continued.empty()) AppendContinuation(continued[index], sequence.get());
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

namespace {
bool Contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}
}  // namespace

StopCondition::StopCondition(const SamplingParams& params,
                             const std::vector<int32_t>& eos_token_ids,
                             int64_t prompt_tokens,
                             int64_t max_model_len)
    : left_(std::min(params.max_tokens, max_model_len - prompt_tokens)) {
  for (const int32_t id : params.stop_token_ids) {
    if (!params.ignore_eos || !Contains(eos_token_ids, id)) stop_ids_.push_back(id);
  }
  if (!params.ignore_eos) {
    stop_ids_.insert(stop_ids_.end(), eos_token_ids.begin(), eos_token_ids.end());
  }
  std::sort(stop_ids_.begin(), stop_ids_.end());
  for (const std::string& stop : params.stop) {
    if (stop.empty()) continue;
    stop_.push_back(stop);
    longest_stop_ = std::max(longest_stop_, stop.size());
  }
}

FinishReason StopCondition::OnToken(int32_t token, const std::string& text) {
  --left_;
  const bool cut = round_left_ > 0 && --round_left_ == 0;
  if (std::binary_search(stop_ids_.begin(), stop_ids_.end(), token)) return FinishReason::kStop;
  if (EndsText(text)) return FinishReason::kStop;
  if (left_ <= 0) return FinishReason::kLength;
  return cut ? FinishReason::kCut : FinishReason::kNone;
}

bool StopCondition::EndsText(const std::string& text) {
  if (stop_.empty()) return false;
  tail_ += text;
  for (const std::string& stop : stop_) {
    if (tail_.find(stop) != std::string::npos) return true;
  }
  if (tail_.size() >= longest_stop_) tail_.erase(0, tail_.size() - (longest_stop_ - 1));
  return false;
}

}  // namespace tandem
