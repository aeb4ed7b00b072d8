// What a reward function is told of a response.
#pragma once

#include "common/types/sample.h"
#include "controller/data/prompt.h"
#include "controller/data/text_codec.h"
#include "controller/reward/reward_function.h"

namespace tandem {

RewardItem MakeRewardItem(const TextCodec& text, const Prompt& prompt, const Sample& sample);

}  // namespace tandem
