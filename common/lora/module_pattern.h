// One entry of a list of modules, as PEFT reads them: a name, the end of a name, or a regular
// expression.
#pragma once

#include <optional>
#include <regex>
#include <string>

#include <absl/status/statusor.h>

namespace tandem {

inline constexpr char kAllLinear[] = "all-linear";

// "all-linear", in any case.
bool IsAllLinear(const std::string& entry);

// Immutable and thread-safe.
class ModulePattern {
 public:
  // A word of letters, digits, _ and . stands for the module of that name and for those whose name
  // ends so after a dot. Anything else is an ECMAScript regex of the whole name. InvalidArgument
  // for an empty entry or a regex that is none; `key` names the list in errors.
  static absl::StatusOr<ModulePattern> Create(const std::string& key, const std::string& entry);

  const std::string& text() const { return text_; }
  bool Matches(const std::string& module) const;

 private:
  std::string text_;
  std::optional<std::regex> regex_;
};

}  // namespace tandem
