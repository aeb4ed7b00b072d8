// What the scorers of answers share: Python's notion of characters on UTF-8 text.
#pragma once

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

}  // namespace tandem
