// Settings of text from a checkpoint's files other than tokenizer.json: tokenizer_config.json,
// chat_template.jinja and generation_config.json.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace tandem {

struct TextSettings {
  std::map<std::string, std::string> special_tokens;  // bos_token, eos_token, unk_token, ...
  std::optional<std::string> chat_template;
  std::string chat_template_file;      // where it was read, for messages
  std::vector<int32_t> eos_token_ids;  // of generation_config.json (else config.json)
};

// Reads those files of `model_dir` that exist. InvalidArgument: one is corrupt.
absl::StatusOr<TextSettings> ReadTextSettings(const std::string& model_dir);

// NotFound, with the remedy, when the file cannot be read.
absl::StatusOr<std::string> ReadTextFile(const std::string& path);

}  // namespace tandem
