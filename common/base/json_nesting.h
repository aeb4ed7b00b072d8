// Checked before a JSON text from outside is parsed: the parser itself takes any depth, but
// what copies, prints, compares or destroys its values calls itself for each level.
#pragma once

#include <string_view>

#include <absl/status/status.h>

namespace tandem {

inline constexpr int kMaxJsonNesting = 200;

// InvalidArgument: lists and objects lie in each other more than kMaxJsonNesting levels deep. Says
// nothing about whether the text is JSON.
absl::Status CheckJsonNesting(std::string_view text);

}  // namespace tandem
