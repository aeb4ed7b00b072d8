#include "common/text/unicode/properties.h"

#include <unicode/bytestream.h>
#include <unicode/casemap.h>
#include <unicode/stringoptions.h>
#include <unicode/stringpiece.h>
#include <unicode/uchar.h>

#include "common/base/check.h"
#include "common/text/unicode/utf8.h"

namespace tandem {
namespace {

constexpr char kNoLanguage[] = "";

icu::StringPiece Piece(std::string_view text) {
  return {text.data(), static_cast<int32_t>(text.size())};
}

// `map` is a function of icu::CaseMap without its last two arguments, which are the same for all.
template <typename Map>
std::string Mapped(std::string_view text, const Map& map) {
  std::string out;
  icu::StringByteSink<std::string> sink(&out, static_cast<int32_t>(text.size()));
  UErrorCode error = U_ZERO_ERROR;
  map(Piece(text), sink, error);
  TANDEM_CHECK(U_SUCCESS(error), "ICU cannot map the case of a text");
  return out;
}

bool HasProperty(char32_t c, UProperty property) {
  return u_hasBinaryProperty(static_cast<UChar32>(c), property) != 0;
}

bool HasCategory(char32_t c, uint32_t mask) {
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & mask) != 0;
}

}  // namespace

bool IsWhiteSpace(char32_t c) { return HasProperty(c, UCHAR_WHITE_SPACE); }
bool IsUpperCase(char32_t c) { return HasProperty(c, UCHAR_UPPERCASE); }
bool IsLetter(char32_t c) { return HasCategory(c, U_GC_L_MASK); }
bool IsNumber(char32_t c) { return HasCategory(c, U_GC_N_MASK); }
bool IsDecimal(char32_t c) { return HasCategory(c, U_GC_ND_MASK); }
bool IsWordCharacter(char32_t c) {
  return HasCategory(c, U_GC_L_MASK | U_GC_M_MASK | U_GC_N_MASK | U_GC_PC_MASK);
}
bool IsPrintable(char32_t c) { return c == ' ' || !HasCategory(c, U_GC_C_MASK | U_GC_Z_MASK); }

std::string ToUpper(std::string_view text) {
  return Mapped(text, [](icu::StringPiece in, icu::ByteSink& out, UErrorCode& error) {
    icu::CaseMap::utf8ToUpper(kNoLanguage, 0, in, out, nullptr, error);
  });
}

std::string ToLower(std::string_view text) {
  return Mapped(text, [](icu::StringPiece in, icu::ByteSink& out, UErrorCode& error) {
    icu::CaseMap::utf8ToLower(kNoLanguage, 0, in, out, nullptr, error);
  });
}

std::string CaseFold(std::string_view text) {
  return Mapped(text, [](icu::StringPiece in, icu::ByteSink& out, UErrorCode& error) {
    icu::CaseMap::utf8Fold(U_FOLD_CASE_DEFAULT, in, out, nullptr, error);
  });
}

std::string Capitalize(std::string_view text) {
  return Mapped(text, [](icu::StringPiece in, icu::ByteSink& out, UErrorCode& error) {
    icu::CaseMap::utf8ToTitle(kNoLanguage,
                              U_TITLECASE_WHOLE_STRING | U_TITLECASE_NO_BREAK_ADJUSTMENT, nullptr,
                              in, out, nullptr, error);
  });
}

std::string ToTitle(std::string_view text) {
  std::string out;
  size_t word = 0;  // where the current word begins, or the text between words
  for (size_t pos = 0; pos < text.size();) {
    if (HasProperty(NextCodePoint(text, pos), UCHAR_CASED)) continue;
    out += Capitalize(text.substr(word, pos - word));
    word = pos;
  }
  return out + Capitalize(text.substr(word));
}

}  // namespace tandem
