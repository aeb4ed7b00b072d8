// The prompts of a run, as its configuration, its tokenizer and its reward function decide them.
// Data files are loaded into tokenized prompts before the run starts, so that no prompt can fail
// later.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/config/config.h"
#include "common/text/tokenizer.h"
#include "controller/data/chat_codec.h"
#include "controller/data/prompt.h"
#include "controller/reward/reward_function.h"

namespace tandem {

// Refuses a row that the reward function cannot score; empty: accepts every row.
using RowCheck =
    std::function<absl::Status(const std::string& data_source, const std::string& ground_truth)>;

struct LoadedPrompts {
  std::vector<Prompt> prompts;
  int64_t rows = 0;       // rows that were read
  int64_t filtered = 0;   // dropped because they were too long
  int64_t truncated = 0;  // truncated to data.max_prompt_length
};

// Reads data.train_files. `vocab_limit`: token ids at or above it are refused. Errors name file and
// line; InvalidArgument also if no prompt is left.
absl::StatusOr<LoadedPrompts> LoadTrainPrompts(const v1::Data& config,
                                               const ChatCodec& codec,
                                               int64_t vocab_limit,
                                               const RowCheck& check = {});
// Reads data.val_files likewise; empty if there are none.
absl::StatusOr<LoadedPrompts> LoadValPrompts(const v1::Data& config,
                                             const ChatCodec& codec,
                                             int64_t vocab_limit,
                                             const RowCheck& check = {});

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
