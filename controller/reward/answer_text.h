// Text functions that scorers of answers share, with Python's notion of characters on UTF-8 text.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

// Returns `text` if it is valid UTF-8, else a copy with U+FFFD in place of invalid bytes.
std::string AsUtf8(std::string_view text);

// The last `count` code points. Scans once from the end.
std::string LastCharacters(const std::string& text, int count);

// The number of bytes of the code point at `pos` < size. Requires valid UTF-8.
size_t CharacterBytes(std::string_view text, size_t pos);

// Python's str.strip: removes white space at both ends. Requires valid UTF-8.
std::string StripSpace(std::string_view text);

// Python's str.replace: replaces every occurrence of `from` (not empty), from the left.
void ReplaceAll(std::string& text, std::string_view from, std::string_view to);

// A regular expression class with the white space of Python's \s.
inline constexpr char kSpaceClass[] =
    "[\\t-\\r\\x{1C}-\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}"
    "\\x{202F}\\x{205F}\\x{3000}]";

// Whether both are equal after white space at both ends is removed.
bool ExactMatch(const std::string& response, const std::string& truth);

// The first or last run of decimal digits, with a minus sign directly before it if there is one, as
// written ("007" stays "007"). A minus between two digits is a subtraction, not a sign.
std::optional<std::string> FirstInteger(const std::string& text);
std::optional<std::string> LastInteger(const std::string& text);
// Whether both are equal as integers: leading zeros, a plus sign and "-0" make no difference. False
// if either is not an integer.
bool IntegersEqual(const std::string& a, const std::string& b);

// The last decimal number of the text ("1,234.50" is 1234.5); nullopt: there is none.
std::optional<double> LastNumber(const std::string& text);
// The number, if the text without white space at both ends is one decimal number.
std::optional<double> WholeNumber(const std::string& text);

// The position after the closing brace that balances the braces which open at or after `from`.
// nullopt: they are never balanced. Scans once.
std::optional<size_t> BalancedEnd(std::string_view text, size_t from);

// The content of the last "\boxed{...}", with balanced braces. nullopt: no such box, or it is not
// closed.
std::optional<std::string> LastBoxed(std::string_view text);

}  // namespace tandem
