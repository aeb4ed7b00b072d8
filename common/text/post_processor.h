// The `post_processor` of a tokenizer.json: special tokens put around a text.
#pragma once

#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json_fwd.hpp>

namespace tandem {

struct PostProcessor {
  std::vector<int32_t> prefix, suffix;

  // Supports TemplateProcessing (the `single` form), ByteLevel (which moves offsets only) and
  // Sequence. null: nothing is added. InvalidArgument names another type.
  static absl::StatusOr<PostProcessor> FromJson(const nlohmann::json& json);
};

}  // namespace tandem
