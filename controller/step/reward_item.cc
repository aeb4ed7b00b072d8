#include "controller/step/reward_item.h"

#include <cstdint>
#include <vector>

namespace tandem {

RewardItem MakeRewardItem(const TextCodec& text, const Prompt& prompt, const Sample& sample) {
  const std::vector<int32_t> response(sample.tokens.begin() + sample.prompt_tokens,
                                      sample.tokens.end());
  return {.sample_id = sample.sample_id,
          .data_source = prompt.data_source,
          .prompt = prompt.text,
          .response = text.Decode(response),
          .ground_truth = prompt.ground_truth,
          .extra_info_json = prompt.extra_info_json,
          .response_tokens = sample.response_tokens(),
          .truncated = sample.finish_reason == FinishReason::kLength};
}

}  // namespace tandem
