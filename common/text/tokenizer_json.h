// Reading of tokenizer.json, tokenizer_config.json and generation_config.json.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "common/text/added_tokens.h"
#include "common/text/bpe_model.h"

namespace tandem {

// The parts of a tokenizer.json, checked. The component objects are kept as JSON (null if absent).
struct TokenizerSpec {
  BpeSpec model;  // byte_level is left false: the pre-tokenizer decides
  std::vector<AddedToken> added_tokens;
  nlohmann::json normalizer, pre_tokenizer, post_processor, decoder;
};

// What the other files of a checkpoint say about text.
struct TextSettings {
  std::map<std::string, std::string> special_tokens;  // bos_token, eos_token, unk_token, ...
  std::optional<std::string> chat_template;
  std::string chat_template_file;      // where it was read, for messages
  std::vector<int32_t> eos_token_ids;  // of generation_config.json (else config.json)
};

// InvalidArgument: no JSON, another model type than BPE, no vocabulary or merges, ids used twice,
// options that are not supported. `name` (a path) starts every message.
absl::StatusOr<TokenizerSpec> ParseTokenizerJson(const std::string& text, const std::string& name);

// Reads those files of `model_dir` that exist. InvalidArgument: one is corrupt.
absl::StatusOr<TextSettings> ReadTextSettings(const std::string& model_dir);

// NotFound, with the remedy, when the file cannot be read.
absl::StatusOr<std::string> ReadTextFile(const std::string& path);

}  // namespace tandem
