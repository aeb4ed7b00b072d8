#include "common/text/added_tokens.h"

#include <algorithm>

#include "common/text/unicode/properties.h"
#include "common/text/unicode/utf8.h"

namespace tandem {
namespace {

// The character that ends at `pos`, which moves to its beginning.
char32_t PreviousCodePoint(std::string_view text, size_t& pos) {
  do --pos;
  while (pos > 0 && (static_cast<uint8_t>(text[pos]) & 0xC0) == 0x80);
  size_t begin = pos;
  return NextCodePoint(text, begin);
}

bool StandsAlone(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && IsWordCharacter(PreviousCodePoint(text, begin))) return false;
  return end >= text.size() || !IsWordCharacter(NextCodePoint(text, end));
}

}  // namespace

void AddedTokenMatcher::Add(const AddedToken& token, const std::string& pattern) {
  if (pattern.empty()) return;
  auto& bucket = by_first_byte_[static_cast<uint8_t>(pattern[0])];
  // Longest first; of equal length in the order of their coming.
  const auto place =
      std::upper_bound(bucket.begin(), bucket.end(), pattern.size(),
                       [](size_t size, const Entry& entry) { return size > entry.pattern.size(); });
  bucket.insert(place, {pattern, token});
  empty_ = false;
}

const AddedTokenMatcher::Entry* AddedTokenMatcher::MatchAt(std::string_view text,
                                                           size_t pos) const {
  for (const Entry& entry : by_first_byte_[static_cast<uint8_t>(text[pos])]) {
    if (text.substr(pos, entry.pattern.size()) == entry.pattern) return &entry;
  }
  return nullptr;
}

std::vector<TextPiece> AddedTokenMatcher::Split(std::string_view text) const {
  std::vector<TextPiece> pieces;
  if (empty_) {
    if (!text.empty()) pieces.push_back({text, -1});
    return pieces;
  }
  size_t done = 0;
  for (size_t pos = 0; pos < text.size();) {
    const Entry* entry = MatchAt(text, pos);
    if (entry == nullptr) {
      ++pos;
      continue;
    }
    size_t begin = pos, end = pos + entry->pattern.size();
    pos = end;
    if (entry->token.single_word && !StandsAlone(text, begin, end)) continue;
    while (entry->token.lstrip && begin > done) {
      size_t previous = begin;
      if (!IsWhiteSpace(PreviousCodePoint(text, previous))) break;
      begin = previous;
    }
    while (entry->token.rstrip && end < text.size()) {
      size_t next = end;
      if (!IsWhiteSpace(NextCodePoint(text, next))) break;
      end = next;
    }
    if (begin > done) pieces.push_back({text.substr(done, begin - done), -1});
    pieces.push_back({text.substr(begin, end - begin), entry->token.id});
    pos = done = end;
  }
  if (done < text.size()) pieces.push_back({text.substr(done), -1});
  return pieces;
}

}  // namespace tandem
