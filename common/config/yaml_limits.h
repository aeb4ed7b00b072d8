// Limits of a YAML text, checked before a tree is built from it: an alias stands for a copy of the
// node that it names, so a few lines can describe a tree larger than memory, or an endless one.
#pragma once

#include <cstddef>
#include <string>

#include <absl/status/status.h>

namespace tandem {

inline constexpr size_t kMaxYamlBytes = size_t{1} << 20;
inline constexpr int kMaxYamlNesting = 64;
inline constexpr size_t kMaxYamlNodes = 100'000;  // with every alias replaced by its node

// InvalidArgument, beginning with the line (counted from 1, as "7: "): larger, deeper or of more
// nodes than that, an alias inside the node that it names, or text that is
// not UTF-8. OK for a text that is not YAML: the parser says why.
absl::Status CheckYamlLimits(const std::string& text);

}  // namespace tandem
