// Character properties, case mapping and normalization, by ICU.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

// By general category, except for the properties White_Space and Uppercase.
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
// Python's str.title: the first character of each word in title case, the others in lower case. A
// word is a run of cased characters; a final sigma is judged in the whole text.
std::string ToTitle(std::string_view text);
// Python's str.swapcase: upper case becomes lower and lower becomes upper; title case stays.
std::string SwapCase(std::string_view text);
// The first character in title case, the rest in lower case.
std::string Capitalize(std::string_view text);

// Python's str.islower and str.isupper: the text has a lower-case (upper-case) character and no
// character of another case. Letters without a counterpart, such as ª, count too. Need valid UTF-8.
bool HasOnlyLowerCase(std::string_view text);
bool HasOnlyUpperCase(std::string_view text);

// Normalization form C (Unicode Standard Annex #15). Needs valid UTF-8. ASCII text comes back
// unchanged at the cost of one scan.
std::string NormalizeNfc(std::string_view text);

}  // namespace tandem
