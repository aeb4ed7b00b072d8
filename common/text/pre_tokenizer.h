// The `pre_tokenizer` of a tokenizer.json: splits text into the words on which BPE works.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json_fwd.hpp>

#include "common/text/unicode/regex.h"

namespace tandem {

// Thread-safe. Supports Sequence, Split, ByteLevel (last only) and Digits.
class PreTokenizer {
 public:
  // null: the whole text is one word. InvalidArgument names a type that is not supported.
  static absl::StatusOr<PreTokenizer> FromJson(const nlohmann::json& json);

  // Whether words are read as bytes, because there is a ByteLevel step.
  bool byte_level() const { return byte_level_; }

  // Words in order. They point into `text` or into `storage`, which the caller keeps alive.
  absl::StatusOr<std::vector<std::string_view>> Split(std::string_view text,
                                                      std::deque<std::string>& storage) const;

 private:
  enum class Behavior { kRemoved, kIsolated, kContiguous, kMergedWithPrevious, kMergedWithNext };
  struct Step {
    std::optional<Regex> pattern;  // none: add_prefix_space
    Behavior behavior = Behavior::kIsolated;
    bool invert = false;
  };
  struct Piece {
    size_t begin, end;
    bool is_match;
  };

  absl::Status AddSteps(const nlohmann::json& json);
  absl::Status AddSplit(const nlohmann::json& json);
  absl::Status AddPattern(const std::string& pattern, Behavior behavior, bool invert);
  static std::vector<Piece> Combine(std::vector<Piece> pieces, Behavior behavior);
  static absl::Status SplitWord(const Step& step,
                                std::string_view word,
                                std::vector<std::string_view>& out);

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

// The `normalizer` of a tokenizer.json: NFC, Replace, Prepend and Sequence of these. Thread-safe.
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
