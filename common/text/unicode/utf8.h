// Converts between UTF-8 and code points.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tandem {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;

bool IsValidUtf8(std::string_view text);

// The code point at `pos`; moves `pos` behind it. Requires valid UTF-8 and pos < size.
char32_t NextCodePoint(std::string_view text, size_t& pos);

void AppendUtf8(char32_t code_point, std::string& out);
std::string ToUtf8(std::u32string_view code_points);
// Needs valid UTF-8.
std::u32string ToCodePoints(std::string_view text);
size_t CountCodePoints(std::string_view text);

// Moves the complete part of `pending` to `out`: complete characters as they are, each maximal
// ill-formed part as U+FFFD (the substitution of the Unicode standard, 3.9 "U+FFFD substitution of
// maximal subparts"). Bytes that may still become a character stay in `pending`.
void DrainUtf8(std::string& pending, std::string& out);
// The same at the end of the text: no bytes stay in `pending`.
void FinishUtf8(std::string& pending, std::string& out);

}  // namespace tandem
