#include "common/text/unicode/properties.h"

#include <unicode/bytestream.h>
#include <unicode/casemap.h>
#include <unicode/normalizer2.h>
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

// Whether the next character that is not case-ignorable is cased: a capital sigma before it is then
// not final (the Unicode standard, 3.13, condition Final_Sigma).
bool CasedFollows(std::string_view text, size_t pos) {
  while (pos < text.size()) {
    const char32_t c = NextCodePoint(text, pos);
    if (!HasProperty(c, UCHAR_CASE_IGNORABLE)) return HasProperty(c, UCHAR_CASED);
  }
  return false;
}

// Walks through a text and maps the case of each character as Python's str methods do: alone, but
// for a capital sigma, whose lower case depends on what is around it in the whole text.
class CaseCursor {
 public:
  explicit CaseCursor(std::string_view text) : text_(text) {}

  // Moves to the next character. False at the end of the text.
  bool Next() {
    if (end_ > 0 && !HasProperty(code_point_, UCHAR_CASE_IGNORABLE)) {
      cased_before_ = HasProperty(code_point_, UCHAR_CASED);
    }
    if (end_ == text_.size()) return false;
    begin_ = end_;
    code_point_ = NextCodePoint(text_, end_);
    return true;
  }

  char32_t code_point() const { return code_point_; }
  std::string_view character() const { return text_.substr(begin_, end_ - begin_); }

  std::string Upper() const { return ToUpper(character()); }
  std::string Title() const { return Capitalize(character()); }
  std::string Lower() const {
    if (code_point_ == U'\u03A3' && cased_before_ && !CasedFollows(text_, end_)) return "\u03C2";
    return ToLower(character());
  }

 private:
  std::string_view text_;
  size_t begin_ = 0;
  size_t end_ = 0;
  char32_t code_point_ = 0;
  bool cased_before_ = false;  // the nearest character that is not case-ignorable
};

// str.islower and str.isupper: some character has the `wanted` property, none has the `other` one
// and none is a title-case letter.
bool HasNoCaseBut(UProperty wanted, UProperty other, std::string_view text) {
  bool found = false;
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = NextCodePoint(text, pos);
    if (HasProperty(c, other) || HasCategory(c, U_GC_LT_MASK)) return false;
    found = found || HasProperty(c, wanted);
  }
  return found;
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
  bool in_word = false;
  for (CaseCursor at(text); at.Next(); in_word = HasProperty(at.code_point(), UCHAR_CASED)) {
    out += in_word ? at.Lower() : at.Title();
  }
  return out;
}

std::string SwapCase(std::string_view text) {
  std::string out;
  for (CaseCursor at(text); at.Next();) {
    if (IsUpperCase(at.code_point())) {
      out += at.Lower();
    } else if (HasProperty(at.code_point(), UCHAR_LOWERCASE)) {
      out += at.Upper();
    } else {
      out += at.character();
    }
  }
  return out;
}

bool HasOnlyLowerCase(std::string_view text) {
  return HasNoCaseBut(UCHAR_LOWERCASE, UCHAR_UPPERCASE, text);
}

bool HasOnlyUpperCase(std::string_view text) {
  return HasNoCaseBut(UCHAR_UPPERCASE, UCHAR_LOWERCASE, text);
}

std::string NormalizeNfc(std::string_view text) {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* const nfc = icu::Normalizer2::getNFCInstance(error);
  TANDEM_CHECK(U_SUCCESS(error), "ICU has no data for Unicode normalization");
  std::string out;
  icu::StringByteSink<std::string> sink(&out, static_cast<int32_t>(text.size()));
  nfc->normalizeUTF8(0, Piece(text), sink, nullptr, error);
  TANDEM_CHECK(U_SUCCESS(error), "ICU cannot normalize a text");
  return out;
}

}  // namespace tandem
