#include <catch2/catch.hpp>

#include "common/text/unicode/properties.h"
#include "common/text/unicode/utf8.h"

namespace tandem::testing {

TEST_CASE("IsValidUtf8 refuses overlong forms, surrogates and values beyond Unicode", "[text]") {
  REQUIRE(IsValidUtf8("a\u00e9\u4e2d\U0001f600"));
  for (const char* text :
       {"\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\x80", "\xE4\xB8"}) {
    REQUIRE(!IsValidUtf8(text));
  }
}

TEST_CASE("NormalizeNfc composes, reorders and keeps what is excluded", "[text]") {
  REQUIRE(NormalizeNfc("e\u0301") == "\u00e9");
  REQUIRE(NormalizeNfc("q\u0307\u0323") == "q\u0323\u0307");  // by combining class
  REQUIRE(NormalizeNfc("s\u0307\u0323") == "\u1e69");         // through the reordered pair
  REQUIRE(NormalizeNfc("\u1112\u1161\u11ab") == "\ud55c");    // Hangul
  REQUIRE(NormalizeNfc("\u212b") == "\u00c5");                // a singleton
  REQUIRE(NormalizeNfc("\u0958") == "\u0915\u093c");          // excluded from composition
  REQUIRE(NormalizeNfc("a\u0300\u0301") == "\u00e0\u0301");
  REQUIRE(NormalizeNfc("plain") == "plain");
}

TEST_CASE("Case mappings cover letters that change their length", "[text]") {
  REQUIRE(ToUpper("stra\u00dfe \u00e9\u01c6") == "STRASSE \u00c9\u01c4");
  REQUIRE(ToLower("\u00c9\u0391\u03a3 \u03a3") == "\u00e9\u03b1\u03c2 \u03c3");
  // What stands in a word without being a letter does not end it.
  REQUIRE(ToLower("\u0391.\u03a3") == "\u03b1.\u03c2");
  REQUIRE(ToLower("\u0391\u03a3.\u0391") == "\u03b1\u03c3.\u03b1");
  REQUIRE(ToLower("\u0391\u03a3. \u0391") == "\u03b1\u03c2. \u03b1");
  REQUIRE(ToLower("\u0391>\u03a3") == "\u03b1>\u03c3");
  REQUIRE(ToTitle("it's ok") == "It'S Ok");
  REQUIRE(ToTitle("2\u00aa vez") == "2\u00aa Vez");  // cased, without another case
  REQUIRE(ToTitle("a\u00aabc") == "A\u00aabc");
  REQUIRE(Capitalize("hELLO wORLD") == "Hello world");
  REQUIRE(Capitalize("\u01c6\u0391\u03a3") == "\u01c5\u03b1\u03c2");
  REQUIRE(CaseFold("\u00df") == "ss");
}

TEST_CASE("Titles and swapped cases are Python's", "[text]") {
  REQUIRE(ToTitle("\u039f\u0394\u039f\u03a3") == "\u039f\u03b4\u03bf\u03c2");
  REQUIRE(ToTitle("\u03a3 \u03a3\u03a3 \u0391'\u03a3") == "\u03a3 \u03a3\u03c2 \u0391'\u03a3");
  // An apostrophe or a combining mark ends the word, but not what decides about the sigma.
  REQUIRE(ToTitle("\u0391\u03a3'\u0391") == "\u0391\u03c3'\u0391");
  REQUIRE(ToTitle("\u0391\u03a3' \u0391") == "\u0391\u03c2' \u0391");
  REQUIRE(ToTitle("\u0391\u03a3\u0301\u0391") == "\u0391\u03c3\u0301\u0391");
  REQUIRE(ToTitle("\u0391\u03a3\u0301") == "\u0391\u03c2\u0301");
  // A modifier letter goes on with a word without being seen by the sigma.
  REQUIRE(ToTitle("\u02b0\u03a3") == "\u02b0\u03c3");
  REQUIRE(ToTitle("\u0149\u03a3 \u00df\u03a3 \u01c4\u03a3") ==
          "\u02bcN\u03c2 Ss\u03c2 \u01c5\u03c2");
  REQUIRE(SwapCase("\u039f\u0394\u039f\u03a3 ab") == "\u03bf\u03b4\u03bf\u03c2 AB");
  REQUIRE(SwapCase("\u01c5 \u00aa \u00df") == "\u01c5 \u00aa SS");
}

TEST_CASE("A text is lower or upper case where Python's islower and isupper say so", "[text]") {
  for (const char* text : {"a", "a1", "\u00aa", "\u00df", "\u03c2"}) {
    INFO(text);
    REQUIRE((HasOnlyLowerCase(text) && !HasOnlyUpperCase(text)));
  }
  for (const char* text : {"A", "A1", "\U0001d400", "\u03a3"}) {
    INFO(text);
    REQUIRE((HasOnlyUpperCase(text) && !HasOnlyLowerCase(text)));
  }
  for (const char* text :
       {"", "1", "aA", "\u01c5", "a\u01c5", "A\u01c5", "a\U0001d400", "A\u00aa"}) {
    INFO(text);
    REQUIRE((!HasOnlyLowerCase(text) && !HasOnlyUpperCase(text)));
  }
}

TEST_CASE("Characters are told apart by their general categories", "[text]") {
  REQUIRE((IsLetter(U'\u4e2d') && !IsLetter(U'\u0301') && !IsLetter(U'7')));
  REQUIRE((IsNumber(U'\u00b2') && !IsDecimal(U'\u00b2') && IsDecimal(U'\u0663')));
  REQUIRE((IsWordCharacter(U'\u0301') && IsWordCharacter(U'_') && !IsWordCharacter(U'-')));
  REQUIRE((IsPrintable(U' ') && !IsPrintable(U'\u00a0') && !IsPrintable(U'\u200b')));
  REQUIRE((IsWhiteSpace(U'\u3000') && !IsWhiteSpace(U'\u200b')));
  REQUIRE((IsUpperCase(U'\u00c9') && !IsUpperCase(U'\u01c5') && !IsUpperCase(U'\u00e9')));
}

}  // namespace tandem::testing
