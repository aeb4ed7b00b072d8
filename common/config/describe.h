// Parts of a key's description that `explain` and docs/reference/config.md share.
#pragma once

#include <string>
#include <vector>

namespace tandem {

struct KeySpec;

// "1 to 2", "at least 0", "above 0, at most 1"; "" without limits.
std::string RangeText(const KeySpec& spec);

// The key's own aliases and those that follow from aliases of the sections above it.
std::vector<std::string> AllAliases(const KeySpec& spec);

}  // namespace tandem
