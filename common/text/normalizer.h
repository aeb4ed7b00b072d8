// The `normalizer` of a tokenizer.json: NFC, Replace, Prepend and Sequence of these.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json_fwd.hpp>

#include "common/text/unicode/regex.h"

namespace tandem {

// Thread-safe.
class Normalizer {
 public:
  // null is the identity. InvalidArgument names a type that is not supported.
  static absl::StatusOr<Normalizer> FromJson(const nlohmann::json& json);

  bool is_identity() const { return steps_.empty(); }
  // Needs valid UTF-8.
  absl::StatusOr<std::string> Apply(std::string_view text) const;

 private:
  enum class Kind { kNfc, kReplace, kReplaceRegex, kPrepend };
  struct Step {
    Kind kind;
    std::string pattern, content;
    std::optional<Regex> regex;
  };
  absl::Status AddSteps(const nlohmann::json& json);
  std::vector<Step> steps_;
};

}  // namespace tandem
