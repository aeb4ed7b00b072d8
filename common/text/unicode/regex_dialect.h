// Rewrites patterns of other engines so that PCRE2 finds what those engines find. Constructs that
// PCRE2 would silently read differently are either rewritten or refused with the reason and the
// remedy; PCRE2 itself refuses what it cannot compile.
#pragma once

#include <string>
#include <string_view>

#include <absl/status/statusor.h>

namespace tandem {

// Oniguruma with Ruby's syntax, with which Hugging Face's tokenizers compile the patterns of
// tokenizer.json: ^ and $ match at every line, so that the result needs PCRE2_MULTILINE.
absl::StatusOr<std::string> PcreFromOniguruma(std::string_view pattern);

// Python's re for str. Needs PCRE2_ALT_CIRCUMFLEX. Constructs that Python does not compile, such as
// \p{L}, keep PCRE2's meaning. Two differences remain: case-insensitive matching, where Python also
// takes i for İ and ı, and \B on an empty text, where Python's own versions differ.
absl::StatusOr<std::string> PcreFromPython(std::string_view pattern);

}  // namespace tandem
