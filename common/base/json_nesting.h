// Checked before a JSON text from outside is parsed: the parser itself takes any depth, but
// the functions that copy, print, compare or destroy its values recurse once per level.
#pragma once

#include <string_view>

#include <absl/status/status.h>

namespace tandem {

inline constexpr int kMaxJsonNesting = 200;

// InvalidArgument: lists and objects are nested more than kMaxJsonNesting levels deep. Does not
// check whether the text is JSON.
absl::Status CheckJsonNesting(std::string_view text);

}  // namespace tandem
