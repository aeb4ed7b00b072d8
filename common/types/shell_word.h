// Texts in commands that a user can type.
#pragma once

#include <string>

#include <absl/strings/str_replace.h>

namespace tandem {

// `text` as a shell reads it as one word: in quotes where it needs them.
inline std::string ShellWord(const std::string& text) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  const bool plain = !text.empty() && text.find_first_not_of(kPlain) == std::string::npos;
  return plain ? text : "'" + absl::StrReplaceAll(text, {{"'", "'\\''"}}) + "'";
}

}  // namespace tandem
