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

  // A pattern of tokenizer.json, in Oniguruma's syntax. InvalidArgument with the reason and the
  // place, also for what PCRE2 would read in another way (regex_dialect.h).
  static absl::StatusOr<Regex> Compile(const std::string& pattern);
  // A pattern of Python's re for str. Errors as Compile.
  static absl::StatusOr<Regex> CompilePython(const std::string& pattern);

  // All non-empty matches from left to right, without overlap. `text` must be valid UTF-8.
  // ResourceExhausted when PCRE2's backtracking limit is hit.
  absl::StatusOr<std::vector<Match>> FindAll(std::string_view text) const;

  // Python's re.fullmatch: whether the pattern matches the text from its beginning to its end.
  // Needs and errors as FindAll.
  absl::StatusOr<bool> MatchesWhole(std::string_view text) const;

 private:
  explicit Regex(std::shared_ptr<const void> code) : code_(std::move(code)) {}
  std::shared_ptr<const void> code_;
};

}  // namespace tandem
