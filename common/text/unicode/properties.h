// Character properties and case mapping.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
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

// Run-length tables of code point properties, as generate_tables.py writes them.

// first, first + step, ..., last all have `value`. Tables are sorted and runs do not overlap.
struct CodePointRun {
  uint32_t first, last;
  uint8_t step;
  int32_t value;
};

template <size_t kCount>
std::optional<int32_t> FindInRuns(const CodePointRun (&runs)[kCount], char32_t code_point) {
  auto it = std::upper_bound(std::begin(runs), std::end(runs), code_point,
                             [](char32_t cp, const CodePointRun& run) { return cp < run.first; });
  if (it == std::begin(runs)) return std::nullopt;
  --it;
  if (code_point <= it->last && (code_point - it->first) % it->step == 0) return it->value;
  return std::nullopt;
}

}  // namespace tandem
