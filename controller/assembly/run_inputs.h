// The inputs that a run loads before it serves anything: model, tokenizer, data and reward.
#pragma once

#include <memory>
#include <vector>

#include <absl/status/statusor.h>

#include "common/config/config.h"
#include "common/model_spec/model_spec.h"
#include "common/text/tokenizer.h"
#include "controller/data/chat_codec.h"
#include "controller/data/prompt.h"
#include "controller/data/shuffled_prompts.h"
#include "controller/reward/reward_function.h"

namespace tandem {

struct RunInputs {
  ModelSpec spec;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatCodec> codec;
  std::unique_ptr<ShuffledPrompts> prompts;
  std::vector<Prompt> validation;
  std::unique_ptr<RewardFunction> reward;
};

// InvalidArgument or NotFound: the message names the file and row that is wrong, or the key that
// does not fit it.
absl::StatusOr<RunInputs> LoadRunInputs(const v1::Config& config);

}  // namespace tandem
