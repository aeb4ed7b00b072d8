// A user's regular expression that finds an answer in a response. It is read as Python's re reads
// it; PCRE2's additions, such as \p{L}, are allowed.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <absl/status/statusor.h>

namespace tandem {

// Thread-safe after compilation.
class AnswerPattern {
 public:
  // InvalidArgument with the reason and the place.
  static absl::StatusOr<AnswerPattern> Compile(const std::string& pattern);

  // The first group of the last match, or the whole match where the pattern has no group. None: no
  // match, or the match limit was hit (a pattern that explodes scores nothing instead of hanging).
  std::optional<std::string> LastCapture(const std::string& text) const;

 private:
  explicit AnswerPattern(std::shared_ptr<const void> code) : code_(std::move(code)) {}
  std::shared_ptr<const void> code_;  // pcre2_code
};

}  // namespace tandem
