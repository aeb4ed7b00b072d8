// A user's regular expression (PCRE2, UTF-8) that finds an answer in a response.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <absl/status/statusor.h>

namespace tandem {

// Thread-safe after compilation.
class AnswerPattern {
 public:
  // InvalidArgument: the pattern does not compile; the message has the reason and the offset.
  static absl::StatusOr<AnswerPattern> Compile(const std::string& pattern);

  // The first group of the last match, or the complete match if the pattern has no group. nullopt:
  // no match, or the match limit was exceeded, so that a pattern with exponential backtracking
  // scores nothing instead of hanging.
  std::optional<std::string> LastCapture(const std::string& text) const;

 private:
  explicit AnswerPattern(std::shared_ptr<const void> code) : code_(std::move(code)) {}
  std::shared_ptr<const void> code_;  // pcre2_code
};

}  // namespace tandem
