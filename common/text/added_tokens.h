// Finds added and special tokens in a text before any other processing.
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
  bool lstrip = false;       // also matches white space on its left
  bool rstrip = false;       // also matches white space on its right
  bool normalized = false;   // matches in the normalized text instead of the raw one
};

// A part of a text; id < 0: ordinary text.
struct TextPiece {
  std::string_view text;
  int32_t id;
};

// Leftmost, then longest match. Thread-safe once filled.
class AddedTokenMatcher {
 public:
  // `pattern` is the text to search for: the content, normalized if the token asks for it.
  void Add(const AddedToken& token, const std::string& pattern);

  // Covers `text` except for white space that lstrip and rstrip remove. Requires valid UTF-8.
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
