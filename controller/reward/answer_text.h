// What the scorers of answers share: Python's notion of characters on UTF-8 text.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

// `text` itself where it is valid UTF-8, else with U+FFFD for what is not.
std::string AsUtf8(std::string_view text);

// The last `count` code points. One scan from the end.
std::string LastCharacters(const std::string& text, int count);

// Bytes of the code point at `pos` < size. Needs valid UTF-8.
size_t CharacterBytes(std::string_view text, size_t pos);

// str.strip: without white space at both ends. Needs valid UTF-8.
std::string StripSpace(std::string_view text);

// str.replace: every occurrence of `from` (not empty), from the left.
void ReplaceAll(std::string& text, std::string_view from, std::string_view to);

// A character class of white space as Python's \s has it, for patterns.
inline constexpr char kSpaceClass[] =
    "[\\t-\\r\\x{1C}-\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}"
    "\\x{202F}\\x{205F}\\x{3000}]";

// Comparing a response with its ground truth: pure functions of two texts.

// Equal after both are stripped of surrounding white space.
bool ExactMatch(const std::string& response, const std::string& truth);

// The first or last run of decimal digits with an optional minus sign directly before it, as
// written ("007" stays "007"). A minus between a digit and a digit is a subtraction, not a sign.
std::optional<std::string> FirstInteger(const std::string& text);
std::optional<std::string> LastInteger(const std::string& text);
// Equal as integers: leading zeros, a plus sign and "-0" do not matter. False if either is none.
bool IntegersEqual(const std::string& a, const std::string& b);

// The last decimal number of the text ("1,234.50" reads as 1234.5), none if there is none.
std::optional<double> LastNumber(const std::string& text);
// The whole text, stripped, is one decimal number.
std::optional<double> WholeNumber(const std::string& text);

// The LaTeX box that holds a final answer.

// Where the braces that open at or behind `from` are balanced again: the position behind that
// closing brace. None: they never are. One scan.
std::optional<size_t> BalancedEnd(std::string_view text, size_t from);

// The inside of the last "\boxed{...}", braces balanced. None: no such box, or it never closes.
std::optional<std::string> LastBoxed(std::string_view text);

}  // namespace tandem
