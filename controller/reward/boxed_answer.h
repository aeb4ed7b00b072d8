// The LaTeX box that holds a final answer.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

// Where the braces that open at or behind `from` are balanced again: the position behind that
// closing brace. None: they never are. One scan.
std::optional<size_t> BalancedEnd(std::string_view text, size_t from);

// The inside of the last "\boxed{...}", braces balanced. None: no such box, or it never closes.
std::optional<std::string> LastBoxed(std::string_view text);

}  // namespace tandem
