#include "controller/report/terminal_text.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <fmt/format.h>

namespace tandem {
namespace {

constexpr char32_t kNoCharacter = 0xffffffff;

// The bytes at the beginning of a text that are one character, and its code point.
struct Character {
  std::string_view bytes;
  char32_t code = kNoCharacter;  // kNoCharacter: one byte that is no UTF-8
};

struct CodeRange {
  char32_t first, last;
};

template <size_t kCount>
bool IsIn(const std::array<CodeRange, kCount>& ranges, char32_t code) {
  return std::any_of(ranges.begin(), ranges.end(), [code](const CodeRange& range) {
    return range.first <= code && code <= range.last;
  });
}

// Wide and fullwidth characters of Unicode's East Asian Width, and the blocks of emoji.
constexpr std::array<CodeRange, 13> kWide = {{{0x1100, 0x115f},
                                              {0x2e80, 0x303e},
                                              {0x3041, 0x4dbf},
                                              {0x4e00, 0xa4cf},
                                              {0xa960, 0xa97c},
                                              {0xac00, 0xd7a3},
                                              {0xf900, 0xfaff},
                                              {0xfe30, 0xfe6f},
                                              {0xff00, 0xff60},
                                              {0xffe0, 0xffe6},
                                              {0x1f300, 0x1f64f},
                                              {0x1f680, 0x1faff},
                                              {0x20000, 0x3fffd}}};
constexpr std::array<CodeRange, 5> kCombining = {
    {{0x0300, 0x036f}, {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff}, {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}}};
// C0 and C1 controls, the Arabic letter mark, zero-width and direction marks, embeddings and
// overrides, line and paragraph separators, isolates, the byte order mark, tags.
constexpr std::array<CodeRange, 9> kObeyed = {{{0x00, 0x1f},
                                               {0x7f, 0x9f},
                                               {0x061c, 0x061c},
                                               {0x180e, 0x180e},
                                               {0x200b, 0x200f},
                                               {0x2028, 0x202e},
                                               {0x2060, 0x206f},
                                               {0xfeff, 0xfeff},
                                               {0xe0000, 0xe007f}}};

Character FirstCharacter(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t length = lead < 0x80                   ? 1
                        : lead >= 0xc2 && lead < 0xe0 ? 2
                        : lead >= 0xe0 && lead < 0xf0 ? 3
                        : lead >= 0xf0 && lead < 0xf5 ? 4
                                                      : 0;
  const Character invalid{.bytes = text.substr(0, 1)};
  if (length == 0 || length > text.size()) return invalid;
  char32_t code = length == 1 ? lead : lead & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xc0u) != 0x80u) return invalid;
    code = (code << 6) | (byte & 0x3fu);
  }
  constexpr std::array<char32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < kLeast[length] || code > 0x10ffff || surrogate) return invalid;
  return {.bytes = text.substr(0, length), .code = code};
}

size_t ColumnsOf(const Character& character) {
  if (character.code == kNoCharacter) return 1;
  if (IsIn(kCombining, character.code)) return 0;
  return IsIn(kWide, character.code) ? 2 : 1;
}

std::string Escaped(const Character& character) {
  if (character.code == '\n') return "\\n";
  if (character.code == kNoCharacter) {
    return fmt::format("\\x{:02x}", static_cast<unsigned char>(character.bytes[0]));
  }
  if (!IsIn(kObeyed, character.code)) return std::string(character.bytes);
  const auto code = static_cast<uint32_t>(character.code);
  if (code < 0x80) return fmt::format("\\x{:02x}", code);
  return code < 0x10000 ? fmt::format("\\u{:04x}", code) : fmt::format("\\U{:08x}", code);
}

}  // namespace

size_t ColumnsOf(const std::string& text) {
  size_t columns = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const Character character = FirstCharacter(rest);
    columns += ColumnsOf(character);
    rest.remove_prefix(character.bytes.size());
  }
  return columns;
}

std::string CutToColumns(const std::string& text, size_t columns) {
  if (columns == 0) return "";
  size_t used = 0, kept = 0;  // columns so far; bytes of the text that leave one column free
  for (std::string_view rest = text; !rest.empty();) {
    const Character character = FirstCharacter(rest);
    used += ColumnsOf(character);
    if (used > columns) return text.substr(0, kept) + "…";
    rest.remove_prefix(character.bytes.size());
    if (used < columns) kept = text.size() - rest.size();
  }
  return text;
}

std::string OneLine(const std::string& text, size_t width) {
  std::string line;
  size_t characters = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const Character character = FirstCharacter(rest);
    if (width > 0 && ++characters > width) return line + "…";
    line += Escaped(character);
    rest.remove_prefix(character.bytes.size());
  }
  return line;
}

std::string Printable(const std::string& text) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  return absl::StrJoin(lines, "\n", [](std::string* out, const std::string& line) {
    out->append(OneLine(line, 0));
  });
}

}  // namespace tandem
