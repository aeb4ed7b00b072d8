#include "common/text/jinja/value/python_text.h"

#include <algorithm>
#include <cstring>

#include "common/text/jinja/value/allowance.h"
#include "common/text/unicode/properties.h"
#include "common/text/unicode/utf8.h"

namespace tandem::jinja {
namespace {

constexpr size_t kPartBytes = 128;  // of one of many texts that one is split into, about

struct WordRange {
  size_t begin, end;
};

std::vector<WordRange> Words(std::string_view text) {
  std::vector<WordRange> words;
  bool inside = false;
  for (size_t pos = 0; pos < text.size();) {
    const size_t start = pos;
    const bool space = IsPythonSpace(NextCodePoint(text, pos));
    if (!space && !inside) {
      if (!MayWork(kPartBytes)) break;
      words.push_back({start, pos});
    }
    if (!space) words.back().end = pos;
    inside = !space;
  }
  return words;
}

// Line boundaries of str.splitlines.
bool IsLineBreak(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

std::string TextBetween(std::string_view text, size_t begin, size_t end) {
  return std::string(text.substr(begin, end - begin));
}

// glibc's memmem is linear even if `part` almost matches at every position. AddressSanitizer looks
// at all of the rest of `text` at each call.
size_t FindByMemmem(std::string_view text, std::string_view part, size_t pos) {
  const void* hit = ::memmem(text.data() + pos, text.size() - pos, part.data(), part.size());
  if (hit == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(hit) - text.data());
}

}  // namespace

size_t FindText(std::string_view text, std::string_view part, size_t pos) {
  if (part.empty() || pos >= text.size()) return text.find(part, pos);
  const size_t at = part.size() == 1 ? text.find(part.front(), pos) : FindByMemmem(text, part, pos);
  return MayWork(std::min(at, text.size()) - pos + part.size()) ? at : std::string_view::npos;
}

size_t FindLastText(std::string_view text, std::string_view part, size_t pos) {
  const uint64_t searched = std::min(pos, text.size());
  if (!MayWork(searched + searched * part.size() / 64)) return std::string_view::npos;
  return text.rfind(part, pos);
}

bool IsPythonSpace(char32_t c) { return IsWhiteSpace(c) || (c >= 0x1C && c <= 0x1F); }

std::string Strip(std::string_view text, Side side, const std::optional<std::string>& characters) {
  const std::u32string set = characters ? ToCodePoints(*characters) : std::u32string();
  const auto removable = [&](char32_t c) {
    return characters ? set.find(c) != std::u32string::npos : IsPythonSpace(c);
  };
  size_t begin = 0, end = text.size();
  while (side != Side::kRight && begin < end) {
    size_t next = begin;
    if (!removable(NextCodePoint(text, next))) break;
    begin = next;
  }
  while (side != Side::kLeft && begin < end) {
    size_t last = end - 1;
    while ((static_cast<uint8_t>(text[last]) & 0xC0) == 0x80) --last;
    size_t at = last;
    if (!removable(NextCodePoint(text, at))) break;
    end = last;
  }
  return TextBetween(text, begin, end);
}

std::vector<std::string> Split(std::string_view text, int64_t limit) {
  const std::vector<WordRange> words = Words(text);
  std::vector<std::string> parts;
  for (size_t i = 0; i < words.size(); ++i) {
    if (limit >= 0 && static_cast<int64_t>(i) == limit) {
      parts.push_back(Strip(text.substr(words[i].begin), Side::kLeft, std::nullopt));
      break;
    }
    parts.push_back(TextBetween(text, words[i].begin, words[i].end));
  }
  return parts;
}

std::vector<std::string> Split(std::string_view text, std::string_view separator, int64_t limit) {
  std::vector<std::string> parts;
  size_t pos = 0;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t hit = FindText(text, separator, pos);
    if (hit == std::string_view::npos || !MayWork(kPartBytes)) break;
    parts.push_back(TextBetween(text, pos, hit));
    pos = hit + separator.size();
  }
  parts.push_back(TextBetween(text, pos, text.size()));
  return parts;
}

std::vector<std::string> SplitFromRight(std::string_view text, int64_t limit) {
  const std::vector<WordRange> words = Words(text);
  std::vector<std::string> parts;
  for (size_t i = words.size(); i-- > 0;) {
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(Strip(text.substr(0, words[i].end), Side::kRight, std::nullopt));
      break;
    }
    parts.push_back(TextBetween(text, words[i].begin, words[i].end));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string> SplitFromRight(std::string_view text,
                                        std::string_view separator,
                                        int64_t limit) {
  std::vector<std::string> parts;
  size_t end = text.size();
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    if (end < separator.size()) break;
    const size_t hit = FindLastText(text, separator, end - separator.size());
    if (hit == std::string_view::npos || !MayWork(kPartBytes)) break;
    parts.push_back(TextBetween(text, hit + separator.size(), end));
    end = hit;
  }
  parts.push_back(TextBetween(text, 0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string> lines;
  size_t start = 0;
  for (size_t pos = 0; pos < text.size();) {
    const size_t at = pos;
    const char32_t c = NextCodePoint(text, pos);
    if (!IsLineBreak(c)) continue;
    if (!MayWork(kPartBytes)) break;
    if (c == '\r' && pos < text.size() && text[pos] == '\n') ++pos;
    lines.push_back(TextBetween(text, start, keep_ends ? pos : at));
    start = pos;
  }
  if (start < text.size()) lines.push_back(TextBetween(text, start, text.size()));
  return lines;
}

std::string Replace(std::string_view text,
                    std::string_view from,
                    std::string_view to,
                    int64_t limit) {
  std::string out;
  int64_t done = 0;
  const auto more = [&] { return limit < 0 || done < limit; };
  size_t pos = 0;
  if (from.empty()) {
    while (more() && MayGrow(out, to.size() + 4)) {
      out += to;
      ++done;
      if (pos >= text.size()) return out;
      const size_t start = pos;
      NextCodePoint(text, pos);
      out += text.substr(start, pos - start);
    }
  }
  while (!from.empty() && more()) {
    const size_t hit = FindText(text, from, pos);
    if (hit == std::string_view::npos) break;
    if (!MayGrow(out, hit - pos + to.size())) break;
    out += text.substr(pos, hit - pos);
    out += to;
    pos = hit + from.size();
    ++done;
  }
  return out + std::string(text.substr(pos));
}

int64_t Count(std::string_view text, std::string_view part) {
  if (part.empty()) return static_cast<int64_t>(CountCodePoints(text)) + 1;
  int64_t count = 0;
  for (size_t pos = 0; (pos = FindText(text, part, pos)) != std::string_view::npos;
       pos += part.size()) {
    ++count;
  }
  return count;
}

std::string Justify(std::string_view text, int64_t width, std::string_view fill, Side text_side) {
  constexpr int64_t kMaxWidth = 1 << 20;
  const int64_t length = static_cast<int64_t>(CountCodePoints(text));
  const int64_t missing = std::min(width, kMaxWidth) - length;
  if (missing <= 0) return std::string(text);
  // str.center puts the odd one left only when the width is odd as well.
  const int64_t left = text_side == Side::kLeft    ? 0
                       : text_side == Side::kRight ? missing
                                                   : missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += text;
  for (int64_t i = left; i < missing; ++i) out += fill;
  return out;
}

}  // namespace tandem::jinja
