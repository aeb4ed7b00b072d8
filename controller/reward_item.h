// What a reward function is told of a response.
#pragma once

#include "common/types/prompt.h"
#include "common/types/sample.h"
#include "controller/reward/reward_function.h"
#include "controller/text_codec.h"

namespace tandem {

RewardItem MakeRewardItem(const TextCodec& text, const Prompt& prompt, const Sample& sample);

}  // namespace tandem
