// Patterns of other engines must find what those engines find. The expectations are from Python
// 3.11's re and from Oniguruma 6.9.8 with Ruby's syntax.
#include "common/text/unicode/regex.h"

#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace tandem::testing {
namespace {

struct RegexCase {
  const char* pattern;
  const char* text;
  std::vector<std::string> found;  // matches that are not empty
};

const RegexCase kPythonCases[] = {
    {"[]abc]+", "a]d[c", {"a]", "c"}},
    {"[^]abc]+", "a]d[c", {"d["}},
    {"[[:alpha:]]", "a] :] b b]", {"a]", ":]"}},
    {"[[:alpha:]", "al:h[b", {"a", "l", ":", "h", "["}},
    {"[:alpha:]+", "al:b", {"al:"}},
    {"[[.a.]]", "a].]", {"a]", ".]"}},
    {"[a[b]+", "a[b]", {"a[b"}},
    {"[:]+]", ":]+]", {":]"}},
    {"[Y-[]+", "XYZ[]", {"YZ["}},
    {"[a&&b]+", "a&b", {"a&b"}},
    {R"([]\s]+)", "] a", {"] "}},
    {"a$", "a\na\n", {"a"}},
    {R"(a\Z)", "a\na\n", {}},
    {"(?m)^.?", "a\nb\n", {"a", "b"}},
    {"a{,2}", "aaaa", {"aa", "aa"}},
    {"a{,}b", "aab", {"aab"}},
    {"a{b}", "a{b}", {"a{b}"}},
    {"a{1,2}+", "aaa", {"aa", "a"}},
    {R"(\d+)", "1\u0663x", {"1\u0663"}},
    {R"(\w+)", "a\u00e9_1-\u00b2a\u0301\u203f", {"a\u00e9_1", "\u00b2a"}},
    {R"([\W]+)", "a\u0301_-", {"\u0301", "-"}},
    {R"(\s+)", "\034\u00a0\u180e\u0085", {"\034\u00a0", "\u0085"}},
    {R"([\S]+)", "a\037\u180e", {"a", "\u180e"}},
    {R"(\v)", "\v\n\u0085", {"\v"}},
    {R"(\u00e9\U0001f600)", "\u00e9\U0001f600", {"\u00e9\U0001f600"}},
    {R"(\b.)", "a\u0301b", {"a", "\u0301", "b"}},
    {R"((?i)\u00c9k)", "\u00e9\u212a", {"\u00e9\u212a"}},
    {"(?i:A)b", "ab aB", {"ab"}},
    {"(?<=a)b|(?<!a)c", "abacbc", {"b", "c"}},
    {"(?P<x>[ab])(?P=x)", "abba", {"bb"}},
    {"(a)?(?(1)b|c)", "abc", {"ab", "c"}},
    {"\\\u00e9[\\\u00e8]", "\u00e9\u00e8", {"\u00e9\u00e8"}},
    {R"(\.[0-3]\.)", ".1.2.", {".1."}},
    {"x(?#[)y", "xy", {"xy"}},
};

const RegexCase kOnigurumaCases[] = {
    {R"([]\s]+)", "] a", {"] "}},
    {"[^]a]+", "a]b", {"b"}},
    {R"([^(\s|[.,])]+)", "a(b|c.d)", {"a", "b", "c", "d"}},
    {"[a[]b]c]+", "a]bc[", {"a]bc"}},
    {"[a[-c]e]+", "a-cbe", {"a-c", "e"}},
    {"^b", "a\nb", {"b"}},
    {"b$", "b\na", {"b"}},
    {"(?m).", "\n", {"\n"}},
    {"a{,2}", "aaaa", {"aa", "aa"}},
    {"a{,}", "a{,}", {"a{,}"}},
    {"a{1,2}?", "aaa", {"a", "a", "a"}},
    {R"(\h+)", "0fgh", {"0f"}},
    {R"([\h-]+)", "f-g", {"f-"}},
    {R"(\v)", "\v\n", {"\v"}},
    {R"(\w+)", "a\u0301_\u203f-\u09f4", {"a\u0301_\u203f"}},
    {R"(\w)", "\u00b2", {"\u00b2"}},
    {R"([\w])", "\u00b2", {}},
    {R"(\b.)", "a\u0301b", {"a"}},
    {R"(\s+)", "\034\u180e\u0085", {"\u0085"}},
    {R"([^\S\n]+)", " \n\u180e", {" "}},
    {R"([\S]+)", "a \u180e", {"a", "\u180e"}},
    {R"(\p{Han}+)", "\u3001\u4e2d", {"\u4e2d"}},
    {R"(\p{^Han}+)", "\u3001\u4e2d", {"\u3001"}},
    {R"(\P{Greek})", "\u0342\u03b1", {"\u0342"}},
    {R"((?i:'s|'ll)|\p{N}{1,3})", "'S'Ll1234", {"'S", "'Ll", "123", "4"}},
    {R"(\u00e9)", "\u00e9", {"\u00e9"}},
    {"a{b", "a{b", {"a{b"}},
    {R"(\x{e9}|\t)", "\u00e9\011", {"\u00e9", "\011"}},
    {"(?i)k", "\u212a", {"\u212a"}},
};

using CompileFunction = absl::StatusOr<Regex> (*)(const std::string&);

void CheckRegexCase(CompileFunction compile, const RegexCase& test) {
  INFO(test.pattern);
  const auto regex = compile(test.pattern);
  INFO(regex.status().ToString());
  REQUIRE(regex.ok());
  const std::string text = test.text;
  const auto matches = regex->FindAll(text);
  REQUIRE(matches.ok());
  std::vector<std::string> found;
  for (const Regex::Match& match : *matches) {
    found.push_back(text.substr(match.begin, match.end - match.begin));
  }
  REQUIRE(found == test.found);
}

void CheckRegexRefusal(CompileFunction compile,
                       const std::string& pattern,
                       const std::string& reason) {
  const auto regex = compile(pattern);
  INFO(pattern);
  REQUIRE(!regex.ok());
  REQUIRE_THAT(std::string(regex.status().message()), Catch::Matchers::Contains(reason));
}

}  // namespace

TEST_CASE("Python's patterns find what re finds", "[text]") {
  for (const RegexCase& test : kPythonCases) CheckRegexCase(&Regex::CompilePython, test);
}

TEST_CASE("A whole match is Python's fullmatch", "[text]") {
  const auto whole = [](const std::string& pattern, const std::string& text) {
    return Regex::CompilePython(pattern).value().MatchesWhole(text).value();
  };
  REQUIRE(whole("a|ab", "ab"));
  REQUIRE(!whole("a", "ab"));
  REQUIRE(!whole("b", "ab"));
  REQUIRE(!whole("a$", "a\n"));
  REQUIRE(whole("(?m)a\n^", "a\n"));  // ^ matches behind a line end that ends the text
  REQUIRE(whole("", ""));
}

TEST_CASE("What Python would read in another way is refused by name", "[text]") {
  for (const auto& [pattern, reason] : std::vector<std::pair<const char*, const char*>>{
           {"a(*ACCEPT)b", "character 2: (* begins a verb of PCRE2, and Python has none"},
           {R"(\Qa\E)", "PCRE2 quotes with \\Q and \\E, Python does not"},
           {"(?x) a # [", "the flag x is not supported"},
           {"a\xC3", "not valid UTF-8"},
           {"a(", "does not compile"},
           {R"(\w()", "does not compile: missing closing parenthesis at offset 14 of '[\\p{L}_"},
           {"[a", "does not compile"}}) {
    CheckRegexRefusal(&Regex::CompilePython, pattern, reason);
  }
}

TEST_CASE("A tokenizer's patterns find what Oniguruma finds", "[text]") {
  for (const RegexCase& test : kOnigurumaCases) CheckRegexCase(&Regex::Compile, test);
}

TEST_CASE("What Oniguruma would read in another way is refused by name", "[text]") {
  for (const auto& [pattern, reason] : std::vector<std::pair<const char*, const char*>>{
           {"x[[:alpha:]]",
            "character 3: in a class, [:alpha:], [^a], a&&b and a - beside [a] are not"},
           {"[a[^bc]]", "[^a], a&&b and a -"},
           {R"([\p{L}&&[^\p{Han}]])", "[^a], a&&b and a -"},
           {"[a[b]-c]", "a - beside [a]"},
           {"a{2}?", "a ? after an interval repeats what is before it"},
           {"a{1,3}+", "a + after an interval repeats what is before it"},
           {"a(?i)b|c", "write (?i:...)"},
           {"(?s).", "m is what others call s"},
           {"(?i:ss)", "without case, Oniguruma takes some letters for several"},
           {"(?i:\u00df)", "write the cases out"},
           {R"(\X)", "\\X has another meaning in PCRE2, or none"},
           {R"([\W])", "\\W in a class is not supported"},
           {R"([\H])", "\\H in a class is not supported"},
           {R"(\Qa\E)", "PCRE2 quotes with"},
           {"(*FAIL)", "Oniguruma has none"}}) {
    CheckRegexRefusal(&Regex::Compile, pattern, reason);
  }
  // Where case counts, and in other groups, such letters are themselves.
  for (const char* pattern :
       {"ss", "(?i:a)ss", "(?i:a)\u00df", "(?i)(?-i:ss)", "(?i:[st]|\u4e2d)"}) {
    INFO(pattern);
    REQUIRE(Regex::Compile(pattern).ok());
  }
}

}  // namespace tandem::testing
