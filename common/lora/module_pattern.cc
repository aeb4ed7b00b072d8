#include "common/lora/module_pattern.h"

#include <algorithm>

#include <absl/strings/match.h>

#include "common/base/status_macros.h"

namespace tandem {
namespace {

bool IsWordCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.';
}

}  // namespace

bool IsAllLinear(const std::string& entry) { return absl::EqualsIgnoreCase(entry, kAllLinear); }

absl::StatusOr<ModulePattern> ModulePattern::Create(const std::string& key,
                                                    const std::string& entry) {
  if (entry.empty()) {
    return InvalidArgument("{} has an empty entry, which names no module: take it out", key);
  }
  ModulePattern pattern;
  pattern.text_ = entry;
  if (std::all_of(entry.begin(), entry.end(), IsWordCharacter)) return pattern;
  try {
    pattern.regex_.emplace(entry, std::regex::ECMAScript);
  } catch (const std::regex_error& error) {
    return InvalidArgument(
        "{}: {} is no ECMAScript regular expression ({}): write one, or a name "
        "such as q_proj",
        key, entry, error.what());
  }
  return pattern;
}

bool ModulePattern::Matches(const std::string& module) const {
  if (regex_.has_value()) return std::regex_match(module, *regex_);
  return module == text_ || absl::EndsWith(module, "." + text_);
}

}  // namespace tandem
