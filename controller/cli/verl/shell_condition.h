// Conditions and patterns of bash: test, [ ... ], [[ ... ]] and case.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace tandem {

// Whether the whole text matches a pattern with *, ? and [...].
bool MatchesShellPattern(const std::string& pattern, const std::string& text);

// Whether a condition holds. `words`: the command's, "test", "[" or "[[" first, with their
// expansions done; `is_set` says whether a variable is. Looks at files for -e, -f and -d.
// InvalidArgument, without a line: what is no condition, or one that is not read here.
absl::StatusOr<bool> ShellCondition(const std::vector<std::string>& words,
                                    const std::function<bool(const std::string& name)>& is_set);

}  // namespace tandem
