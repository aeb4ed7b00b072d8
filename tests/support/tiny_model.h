// A language model of a few thousand parameters, made on the spot: a whole HF checkpoint directory
// with seeded random weights and a byte-level tokenizer, so that tests need no download.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/status.h>

#include "common/model_spec/model_spec.h"

namespace tandem::testing {

struct TinyModelOptions {
  std::string model_type = "llama";  // llama, qwen2 (qkv bias) or qwen3 (q/k norm)
  int64_t vocab_size = 288;          // embedding rows: more than the tokenizer has ids
  int64_t hidden_size = 64;
  int64_t num_layers = 2;
  int64_t num_heads = 4;
  int64_t num_kv_heads = 2;
  int64_t head_dim = 16;
  int64_t intermediate_size = 96;
  int64_t max_position = 1024;  // tokens
  bool tie_word_embeddings = true;
  bool float32 = false;  // dtype of the file, else bf16
  uint64_t seed = 1;
};

// Ids of the tiny tokenizer: 256 bytes, a few merges, three special tokens. Ids at or above are
// embedding rows without a token.
int64_t TinyTokenizerSize();
// The id of <|im_end|>, which ends a response.
int32_t TinyEosTokenId();
// <|endoftext|>
int32_t TinyPadTokenId();

ModelSpec TinyModelSpec(const TinyModelOptions& options);

// Writes config.json, generation_config.json, model.safetensors, tokenizer.json and
// tokenizer_config.json (with a chat template) into `directory`, which is made if missing.
absl::Status WriteTinyModel(const std::string& directory, const TinyModelOptions& options = {});

}  // namespace tandem::testing
