// PCRE2 with Unicode properties and JIT, searching UTF-8 text.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace tandem {

// Thread-safe after compilation.
class Regex {
 public:
  struct Match {
    size_t begin, end;  // bytes
  };

  // The pattern is in Oniguruma's syntax as tokenizer.json carries it: \s means exactly the
  // White_Space property. InvalidArgument with PCRE2's reason and the offset.
  static absl::StatusOr<Regex> Compile(const std::string& pattern);

  // All non-empty matches from left to right, without overlap. `text` must be valid UTF-8.
  // ResourceExhausted when PCRE2's backtracking limit is hit.
  absl::StatusOr<std::vector<Match>> FindAll(std::string_view text) const;

 private:
  explicit Regex(std::shared_ptr<const void> code) : code_(std::move(code)) {}
  std::shared_ptr<const void> code_;
};

}  // namespace tandem
