// A pattern of a tokenizer.json or of a reward's arguments (first line), and a text it searches.
#include "common/text/unicode/regex.h"

#include "common/text/unicode/properties.h"
#include "common/text/unicode/utf8.h"
#include "tests/fuzz/target.h"

TANDEM_FUZZ_TARGET(regex) {
  const size_t line = input.find('\n');
  const std::string pattern(input.substr(0, line));
  const std::string text(line == input.npos ? "" : input.substr(line + 1));
  if (!tandem::IsValidUtf8(pattern) || !tandem::IsValidUtf8(text)) return;
  (void)tandem::NormalizeNfc(text);
  const auto one = tandem::Regex::Compile(pattern);
  if (one.ok()) (void)one->FindAll(text);
  const auto other = tandem::Regex::CompilePython(pattern);
  if (other.ok()) (void)other->MatchesWhole(text);
}
