// Converts the tokenizer inside a GGUF file to Hugging Face's tokenizer.json and
// tokenizer_config.json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/formats/gguf/gguf_file.h"

namespace tandem {

struct GgufTokenizer {
  std::string tokenizer_json;         // byte-level BPE with its pre-tokenizer and added tokens
  std::string tokenizer_config_json;  // special tokens and the chat template
  std::vector<int32_t> eos_token_ids;
  int32_t bos_token_id = -1;  // -1: none
  int32_t pad_token_id = -1;
};

// Supports tokenizer.ggml.model "gpt2" with tokenizer.ggml.pre smollm, gpt-2, llama-bpe or qwen2;
// Unimplemented names any other. InvalidArgument names a missing or malformed key (no merges, a
// merge that is not a pair, a token id outside the vocabulary).
absl::StatusOr<GgufTokenizer> ConvertGgufTokenizer(const GgufFile& file);

}  // namespace tandem
