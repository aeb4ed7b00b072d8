// The byte alphabet of byte-level BPE: every byte is one printable character, so that tokens can be
// written in JSON. Printable Latin-1 bytes stand for themselves, the others for U+0100 upwards.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

// The character of a byte, as UTF-8.
const std::string& ByteLevelCharacter(uint8_t byte);

std::string ToByteLevel(std::string_view bytes);

// nullopt if a character is not of the alphabet.
std::optional<std::string> FromByteLevel(std::string_view text);

// The value of a byte-fallback token `<0xHH>`, else nullopt.
std::optional<uint8_t> ParseByteToken(std::string_view token);

}  // namespace tandem
