// What a YAML text may be, looked at before a tree is made of it: an alias stands for a copy of
// what it names, so that a few lines can mean more than any memory holds, or themselves.
#pragma once

#include <cstddef>
#include <string>

#include <absl/status/status.h>

namespace tandem {

inline constexpr size_t kMaxYamlBytes = size_t{1} << 20;
inline constexpr int kMaxYamlNesting = 64;
inline constexpr size_t kMaxYamlNodes = 100'000;  // with every alias replaced by what it names

// InvalidArgument, beginning with the line (counted from 1, as "7: "): larger, deeper or of more
// nodes than that, an alias within what it names, or text that is
// not UTF-8. OK for what is no YAML: the parser says why.
absl::Status CheckYamlLimits(const std::string& text);

}  // namespace tandem
