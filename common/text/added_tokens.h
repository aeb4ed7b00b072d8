// Added and special tokens: found in the text before anything else is done to it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;
  bool single_word = false;  // matches only between non-word characters
  bool lstrip = false;       // swallows white space on its left
  bool rstrip = false;       // and on its right
  bool normalized = false;   // matches in the normalized text, not in the raw one
};

// A stretch of text; id < 0 is ordinary text.
struct TextPiece {
  std::string_view text;
  int32_t id;
};

// Leftmost, then longest match. Thread-safe once filled.
class AddedTokenMatcher {
 public:
  // `pattern` is the text to look for: the content, normalized where the token says so.
  void Add(const AddedToken& token, const std::string& pattern);

  // Covers `text` but for the white space swallowed by strips. Needs valid UTF-8.
  std::vector<TextPiece> Split(std::string_view text) const;

 private:
  struct Entry {
    std::string pattern;
    AddedToken token;
  };
  const Entry* MatchAt(std::string_view text, size_t pos) const;

  std::array<std::vector<Entry>, 256> by_first_byte_;  // longest first
  bool empty_ = true;
};

}  // namespace tandem
