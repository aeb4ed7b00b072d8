#include "controller/reward/answer_text.h"

#include <optional>

#include "common/text/jinja/value/python_text.h"
#include "common/text/unicode/utf8.h"

namespace tandem {

std::string AsUtf8(std::string_view text) {
  std::string pending(text);
  if (IsValidUtf8(text)) return pending;
  std::string valid;
  FinishUtf8(pending, valid);
  return valid;
}

std::string LastCharacters(const std::string& text, int count) {
  int characters = 0;
  for (size_t i = text.size(); i > 0; --i) {
    const bool starts_character = (static_cast<unsigned char>(text[i - 1]) & 0xC0u) != 0x80u;
    if (starts_character && ++characters == count) return text.substr(i - 1);
  }
  return text;
}

size_t CharacterBytes(std::string_view text, size_t pos) {
  size_t end = pos;
  NextCodePoint(text, end);
  return end - pos;
}

std::string StripSpace(std::string_view text) {
  return jinja::Strip(text, jinja::Side::kBoth, std::nullopt);
}

void ReplaceAll(std::string& text, std::string_view from, std::string_view to) {
  text = jinja::Replace(text, from, to, -1);
}

}  // namespace tandem
