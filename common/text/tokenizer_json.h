// Reads tokenizer.json.
#pragma once

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

// InvalidArgument: no JSON, another model type than BPE, no vocabulary or merges, ids used twice,
// options that are not supported. `name` (a path) starts every message.
absl::StatusOr<TokenizerSpec> ParseTokenizerJson(const std::string& text, const std::string& name);

}  // namespace tandem
