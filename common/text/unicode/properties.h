// Character properties and case mapping.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

// The White_Space property.
bool IsWhiteSpace(char32_t c);

// Full case mappings: one character may become several, and a final sigma gets its own form. Need
// valid UTF-8.
std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);
// For comparison without case: ß becomes ss.
std::string CaseFold(std::string_view text);
// First cased character of each word in title case, the others in lower case, where a word is a
// run of cased characters.
std::string ToTitle(std::string_view text);
// The first character in title case, the rest in lower case.
std::string Capitalize(std::string_view text);

bool IsUpperCased(char32_t c);  // has a lower case form
bool IsLowerCased(char32_t c);  // has an upper case form

}  // namespace tandem
