#include "common/base/json_nesting.h"

#include <cstddef>

#include "common/base/status.h"

namespace tandem {

absl::Status CheckJsonNesting(std::string_view text) {
  int depth = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') {
      // To the end of the string; a backslash takes the next character with it.
      for (++at; at < text.size() && text[at] != '"'; ++at) at += text[at] == '\\';
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonNesting) {
        return InvalidArgument(
            "the JSON nests lists and objects more than {} levels deep, at byte {}; no valid file "
            "is nested so deeply: download or write it again",
            kMaxJsonNesting, at);
      }
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem
