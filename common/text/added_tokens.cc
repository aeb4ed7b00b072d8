#include "common/text/added_tokens.h"

#include <algorithm>

#include "common/text/unicode/properties.h"
#include "common/text/unicode/regex.h"
#include "common/text/unicode/utf8.h"

namespace tandem {
namespace {

bool IsWordCharacter(std::string_view character) {
  static const auto* const kWord =
      new absl::StatusOr<Regex>(Regex::Compile(R"([\p{L}\p{M}\p{N}\p{Pc}])"));
  const auto matches = (*kWord)->FindAll(character);
  return matches.ok() && !matches->empty();
}

// The character that ends at `end`.
std::string_view CharacterBefore(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  return text.substr(begin, end - begin);
}

bool StandsAlone(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && IsWordCharacter(CharacterBefore(text, begin))) return false;
  if (end >= text.size()) return true;
  return !IsWordCharacter(text.substr(end, ValidSequenceLength(text, end)));
}

}  // namespace

void AddedTokenMatcher::Add(const AddedToken& token, const std::string& pattern) {
  if (pattern.empty()) return;
  auto& bucket = by_first_byte_[static_cast<uint8_t>(pattern[0])];
  bucket.push_back({pattern, token});
  std::stable_sort(bucket.begin(), bucket.end(), [](const Entry& a, const Entry& b) {
    return a.pattern.size() > b.pattern.size();
  });
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
      const std::string_view before = CharacterBefore(text, begin);
      size_t at = 0;
      if (!IsWhiteSpace(NextCodePoint(before, at))) break;
      begin -= before.size();
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
