#include "common/text/unicode/utf8.h"

#include <cstdint>

namespace tandem {
namespace {

struct LeadRule {
  size_t length;      // 0: not a lead byte
  uint8_t low, high;  // what the second byte may be
};

// Table 3-7 of the Unicode standard, "Well-formed UTF-8 byte sequences".
LeadRule RuleOf(uint8_t lead) {
  if (lead < 0x80) return {1, 0, 0};
  if (lead < 0xC2) return {0, 0, 0};
  if (lead < 0xE0) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead < 0xF0) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead < 0xF4) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// Bytes at `pos` that are the start of a well-formed sequence, at least 1; `complete` if whole.
size_t MaximalSubpart(std::string_view text, size_t pos, bool& complete, bool& truncated) {
  const LeadRule rule = RuleOf(static_cast<uint8_t>(text[pos]));
  complete = truncated = false;
  if (rule.length == 0) return 1;
  for (size_t i = 1; i < rule.length; ++i) {
    if (pos + i >= text.size()) {
      truncated = true;
      return i;
    }
    const uint8_t byte = static_cast<uint8_t>(text[pos + i]);
    const uint8_t low = i == 1 ? rule.low : 0x80;
    const uint8_t high = i == 1 ? rule.high : 0xBF;
    if (byte < low || byte > high) return i;
  }
  complete = true;
  return rule.length;
}

void Drain(std::string& pending, std::string& out, bool at_end) {
  size_t pos = 0;
  while (pos < pending.size()) {
    bool complete, truncated;
    const size_t length = MaximalSubpart(pending, pos, complete, truncated);
    if (truncated && !at_end) break;
    if (complete) {
      out.append(pending, pos, length);
    } else {
      AppendUtf8(kReplacementCharacter, out);
    }
    pos += length;
  }
  pending.erase(0, pos);
}

}  // namespace

bool IsValidUtf8(std::string_view text) {
  for (size_t pos = 0; pos < text.size();) {
    if (static_cast<uint8_t>(text[pos]) < 0x80) {
      ++pos;
      continue;
    }
    bool complete, truncated;
    pos += MaximalSubpart(text, pos, complete, truncated);
    if (!complete) return false;
  }
  return true;
}

char32_t NextCodePoint(std::string_view text, size_t& pos) {
  const uint8_t lead = static_cast<uint8_t>(text[pos++]);
  if (lead < 0x80) return lead;
  const int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
  char32_t code_point = lead & (0x3F >> more);
  for (int i = 0; i < more && pos < text.size(); ++i) {
    code_point = (code_point << 6) | (static_cast<uint8_t>(text[pos++]) & 0x3F);
  }
  return code_point;
}

void AppendUtf8(char32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

std::string ToUtf8(std::u32string_view code_points) {
  std::string out;
  out.reserve(code_points.size());
  for (char32_t c : code_points) AppendUtf8(c, out);
  return out;
}

std::u32string ToCodePoints(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) out += NextCodePoint(text, pos);
  return out;
}

size_t CountCodePoints(std::string_view text) {
  size_t count = 0;
  for (char c : text) count += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return count;
}

void DrainUtf8(std::string& pending, std::string& out) { Drain(pending, out, false); }
void FinishUtf8(std::string& pending, std::string& out) { Drain(pending, out, true); }

}  // namespace tandem
