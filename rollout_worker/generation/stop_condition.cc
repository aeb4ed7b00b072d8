#include "rollout_worker/generation/stop_condition.h"

#include <algorithm>

namespace tandem {
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
