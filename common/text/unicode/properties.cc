#include "common/text/unicode/properties.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "common/text/unicode/utf8.h"

namespace tandem {
namespace {

struct SpecialCase {
  uint32_t code_point;
  const char* text;
};

#include "common/text/unicode/case_tables.inc"

template <size_t kSpecials>
const char* FindSpecial(const SpecialCase (&specials)[kSpecials], char32_t c) {
  const auto it =
      std::lower_bound(std::begin(specials), std::end(specials), c,
                       [](const SpecialCase& s, char32_t cp) { return s.code_point < cp; });
  return it != std::end(specials) && it->code_point == c ? it->text : nullptr;
}

template <size_t kRuns, size_t kSpecials>
void AppendMapped(const CodePointRun (&runs)[kRuns],
                  const SpecialCase (&specials)[kSpecials],
                  char32_t c,
                  std::string& out) {
  if (const auto delta = FindInRuns(runs, c)) {
    AppendUtf8(static_cast<char32_t>(static_cast<int32_t>(c) + *delta), out);
  } else if (const char* text = FindSpecial(specials, c)) {
    out += text;
  } else {
    AppendUtf8(c, out);
  }
}

void AppendLower(char32_t c, std::string& out) { AppendMapped(kLower, kLowerSpecial, c, out); }
void AppendTitle(char32_t c, std::string& out) { AppendMapped(kTitle, kTitleSpecial, c, out); }

constexpr char32_t kSigma = 0x3A3, kFinalSigma = 0x3C2;

bool IsCased(char32_t c) { return FindInRuns(kCased, c).has_value(); }
// Full stops, apostrophes, accents and the like: no letters, but they end no word either.
bool IsCaseIgnorable(char32_t c) { return FindInRuns(kCaseIgnorable, c).has_value(); }

bool CasedFollows(std::string_view text, size_t pos) {
  while (pos < text.size()) {
    const char32_t c = NextCodePoint(text, pos);
    if (!IsCaseIgnorable(c)) return IsCased(c);
  }
  return false;
}

}  // namespace

bool IsWhiteSpace(char32_t c) {
  return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool IsUpperCased(char32_t c) { return FindInRuns(kLower, c).has_value() || c == 0x130; }
bool IsLowerCased(char32_t c) {
  return FindInRuns(kUpper, c).has_value() || FindSpecial(kUpperSpecial, c) != nullptr;
}

std::string ToUpper(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    AppendMapped(kUpper, kUpperSpecial, NextCodePoint(text, pos), out);
  }
  return out;
}

std::string ToLower(std::string_view text) {
  std::string out;
  bool after_cased = false;
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = NextCodePoint(text, pos);
    if (c == kSigma && after_cased && !CasedFollows(text, pos)) {
      AppendUtf8(kFinalSigma, out);
    } else {
      AppendLower(c, out);
    }
    if (!IsCaseIgnorable(c)) after_cased = IsCased(c);
  }
  return out;
}

std::string CaseFold(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    AppendMapped(kFold, kFoldSpecial, NextCodePoint(text, pos), out);
  }
  return out;
}

std::string ToTitle(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = NextCodePoint(text, pos);
    if (in_word) {
      AppendLower(c, out);
    } else {
      AppendTitle(c, out);
    }
    in_word = IsUpperCased(c) || IsLowerCased(c);
  }
  return out;
}

std::string Capitalize(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const bool first = pos == 0;
    const char32_t c = NextCodePoint(text, pos);
    if (first) {
      AppendTitle(c, out);
    } else {
      AppendLower(c, out);
    }
  }
  return out;
}

}  // namespace tandem
