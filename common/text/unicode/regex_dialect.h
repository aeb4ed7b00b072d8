// Patterns of other engines, rewritten so that PCRE2 finds what those engines find. What PCRE2
// would silently read in another way is either spelled out or refused with the reason and the
// remedy; what it cannot compile it refuses itself.
#pragma once

#include <string>
#include <string_view>

#include <absl/status/statusor.h>

namespace tandem {

// Oniguruma with Ruby's syntax, which Hugging Face's tokenizers compile the patterns of
// tokenizer.json with: ^ and $ match at every line, so that the result needs PCRE2_MULTILINE.
absl::StatusOr<std::string> PcreFromOniguruma(std::string_view pattern);

// Python's re for str. Needs PCRE2_ALT_CIRCUMFLEX. What Python does not compile, such as \p{L},
// keeps PCRE2's meaning. Two differences stay: without case, Python also takes i for İ and ı, and
// \B on an empty text, where Python's own versions differ.
absl::StatusOr<std::string> PcreFromPython(std::string_view pattern);

}  // namespace tandem
