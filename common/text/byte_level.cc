#include "common/text/byte_level.h"

#include <array>

#include "common/text/unicode/utf8.h"

namespace tandem {
namespace {

constexpr size_t kAlphabetEnd = 0x144;  // 256 + the 68 bytes that do not stand for themselves

struct Alphabet {
  std::array<std::string, 256> characters;
  std::array<int, kAlphabetEnd> bytes;

  Alphabet() {
    bytes.fill(-1);
    char32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool itself = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      const char32_t character = itself ? static_cast<char32_t>(b) : next++;
      AppendUtf8(character, characters[b]);
      bytes[character] = b;
    }
  }
};

const Alphabet& GetAlphabet() {
  static const Alphabet alphabet;
  return alphabet;
}

}  // namespace

const std::string& ByteLevelCharacter(uint8_t byte) { return GetAlphabet().characters[byte]; }

std::string ToByteLevel(std::string_view bytes) {
  std::string out;
  for (char b : bytes) out += ByteLevelCharacter(static_cast<uint8_t>(b));
  return out;
}

std::optional<std::string> FromByteLevel(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = NextCodePoint(text, pos);
    const int byte = c < kAlphabetEnd ? GetAlphabet().bytes[c] : -1;
    if (byte < 0) return std::nullopt;
    out += static_cast<char>(byte);
  }
  return out;
}

std::optional<uint8_t> ParseByteToken(std::string_view token) {
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return std::nullopt;
  int value = 0;
  for (char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return std::nullopt;
    value = value * 16 + digit;
  }
  return static_cast<uint8_t>(value);
}

}  // namespace tandem
