// Character properties and case mapping, by ICU.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

// By general category, but for the properties White_Space and Uppercase.
bool IsWhiteSpace(char32_t c);
bool IsUpperCase(char32_t c);
bool IsLetter(char32_t c);         // L
bool IsNumber(char32_t c);         // N
bool IsDecimal(char32_t c);        // Nd
bool IsWordCharacter(char32_t c);  // L, M, N, Pc
bool IsPrintable(char32_t c);      // neither C nor Z, or a space: Python's str.isprintable

// Full case mappings without a language: one character may become several, and a final sigma gets
// its own form. Need valid UTF-8.
std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);
// For comparison without case: ß becomes ss.
std::string CaseFold(std::string_view text);
// First cased character of each word in title case, the others in lower case, where a word is a
// run of cased characters.
std::string ToTitle(std::string_view text);
// The first character in title case, the rest in lower case.
std::string Capitalize(std::string_view text);

}  // namespace tandem
