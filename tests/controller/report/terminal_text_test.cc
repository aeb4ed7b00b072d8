#include "controller/report/terminal_text.h"

#include <catch2/catch.hpp>

using namespace tandem;  // NOLINT(google-build-using-namespace)

TEST_CASE("OneLine keeps control characters from the terminal", "[report][text]") {
  REQUIRE(OneLine("a\nb\x1b[2J", 0) == "a\\nb\\x1b[2J");
  REQUIRE(OneLine("äöü!", 3) == "äöü…");
  REQUIRE(OneLine("äöü!", 4) == "äöü!");
}

TEST_CASE("Printable keeps the lines of a text, and escapes each", "[report][text]") {
  REQUIRE(Printable("a\n\x1b[2Jb\n") == "a\n\\x1b[2Jb\n");
  REQUIRE(Printable("").empty());
}

TEST_CASE("OneLine escapes what changes the direction of text, and what is no UTF-8",
          "[report][text]") {
  for (const auto& [text, escaped] : std::vector<std::pair<std::string, std::string>>{
           {"\u202e", "\\u202e"},
           {"\u2066x\u2069", "\\u2066x\\u2069"},
           {"\u200f", "\\u200f"},
           {"\u061c", "\\u061c"},
           {"\u2028", "\\u2028"},
           {"\u009b2J", "\\u009b2J"},
           {"\ufeff", "\\ufeff"},
           {"\U000e0041", "\\U000e0041"},
           {"\x7f", "\\x7f"},
           {std::string("\0", 1), "\\x00"},
           {"\xc3", "\\xc3"},
           {"\xed\xa0\x80", "\\xed\\xa0\\x80"},
           {"\xc0\x80", "\\xc0\\x80"},
           {"\xf5\x80\x80\x80", "\\xf5\\x80\\x80\\x80"},
           {"é中🙂", "é中🙂"}}) {
    INFO(escaped);
    REQUIRE(OneLine(text, 0) == escaped);
  }
}

TEST_CASE("Wide characters take two columns and combining marks none", "[report][text]") {
  REQUIRE(ColumnsOf("abc") == 3);
  REQUIRE(ColumnsOf("中文") == 4);
  REQUIRE(ColumnsOf("e\u0301") == 1);
  REQUIRE(ColumnsOf("🙂") == 2);
  REQUIRE(ColumnsOf("±…") == 2);
  REQUIRE(ColumnsOf("\xff") == 1);
}

TEST_CASE("CutToColumns keeps what fits and marks what does not", "[report][text]") {
  REQUIRE(CutToColumns("abcdef", 6) == "abcdef");
  REQUIRE(CutToColumns("abcdef", 5) == "abcd…");
  REQUIRE(CutToColumns("中文字", 6) == "中文字");
  REQUIRE(CutToColumns("中文字", 5) == "中文…");
  REQUIRE(CutToColumns("中文字", 4) == "中…");
  REQUIRE(CutToColumns("abc", 1) == "…");
  REQUIRE(CutToColumns("abc", 0).empty());
  REQUIRE(CutToColumns("", 3).empty());
}
