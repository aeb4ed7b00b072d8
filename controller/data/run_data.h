// The prompts of a run, as its configuration, its tokenizer and its reward function decide them.
#pragma once

#include <memory>

#include <absl/status/statusor.h>

#include "common/config/config.h"
#include "common/text/tokenizer.h"
#include "controller/data/chat_codec.h"
#include "controller/data/prompt_loader.h"
#include "controller/reward/reward_function.h"

namespace tandem {

struct RunData {
  std::unique_ptr<ChatCodec> codec;  // refers to the tokenizer
  LoadedPrompts train;
  LoadedPrompts validation;
};

// Reads all data files. Errors as ChatCodec::Create, LoadTrainPrompts and LoadValPrompts; they name
// file and line, also where `reward` cannot score a row. And as CheckRewardKeys.
absl::StatusOr<RunData> LoadRunData(const v1::Config& config,
                                    const Tokenizer& tokenizer,
                                    const RewardFunction& reward);

}  // namespace tandem
