#include "common/text/jinja/expression_lexer.h"

#include <optional>

#include "common/base/status_macros.h"
#include "common/text/unicode/regex.h"
#include "common/text/unicode/utf8.h"

namespace tandem::jinja {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// \w: letters, digits, underscore.
bool IsNameCharacter(char32_t c) {
  if (c < 0x80) {
    return c == '_' || IsDigit(static_cast<char>(c)) || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z');
  }
  static const auto* const kWord = new absl::StatusOr<Regex>(Regex::Compile(R"([\p{L}\p{N}])"));
  std::string text;
  AppendUtf8(c, text);
  const auto matches = (*kWord)->FindAll(text);
  return matches.ok() && !matches->empty();
}

std::string TakeDigits(const std::string& source, size_t& pos) {
  std::string digits;
  while (pos < source.size() &&
         (IsDigit(source[pos]) || (source[pos] == '_' && !digits.empty() &&
                                   pos + 1 < source.size() && IsDigit(source[pos + 1])))) {
    if (source[pos] != '_') digits += source[pos];
    ++pos;
  }
  return digits;
}

// 0x1F, 0b01, 0o17 as a decimal text.
std::optional<std::string> TakeRadixInteger(const std::string& source, size_t& pos) {
  if (source[pos] != '0' || pos + 2 >= source.size()) return std::nullopt;
  const char mark = static_cast<char>(source[pos + 1] | 0x20);
  const int radix = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
  if (radix == 0) return std::nullopt;
  size_t used = 0;
  uint64_t number = 0;
  size_t at = pos + 2;
  for (; at < source.size(); ++at) {
    const char c = static_cast<char>(source[at] | 0x20);
    const int digit = IsDigit(source[at])    ? source[at] - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : 99;
    if (digit >= radix || used > 15) break;
    number = number * static_cast<uint64_t>(radix) + static_cast<uint64_t>(digit);
    ++used;
  }
  if (used == 0) return std::nullopt;
  pos = at;
  return std::to_string(number);
}

Token TakeNumber(const std::string& source, size_t& pos) {
  if (const auto radix = TakeRadixInteger(source, pos)) return {TokenKind::kInteger, *radix, 0};
  const bool after_dot = pos > 0 && source[pos - 1] == '.';
  std::string text = TakeDigits(source, pos);
  bool is_float = false;
  if (!after_dot && pos + 1 < source.size() && source[pos] == '.' && IsDigit(source[pos + 1])) {
    ++pos;
    text += "." + TakeDigits(source, pos);
    is_float = true;
  }
  if (!after_dot && pos < source.size() && (source[pos] == 'e' || source[pos] == 'E')) {
    size_t at = pos + 1;
    std::string sign;
    if (at < source.size() && (source[at] == '+' || source[at] == '-')) sign = source[at++];
    if (const std::string exponent = TakeDigits(source, at); !exponent.empty()) {
      text += "e" + sign + exponent;
      pos = at;
      is_float = true;
    }
  }
  return {is_float ? TokenKind::kFloat : TokenKind::kInteger, text, 0};
}

// `digits` hex digits at `pos` as a character.
absl::Status TakeHexEscape(const std::string& source, size_t& pos, int digits, std::string& out) {
  uint32_t code_point = 0;
  for (int i = 0; i < digits; ++i, ++pos) {
    const char c = pos < source.size() ? static_cast<char>(source[pos] | 0x20) : ' ';
    const int digit = IsDigit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return InvalidArgument("truncated escape in a string");
    code_point = code_point * 16 + static_cast<uint32_t>(digit);
  }
  if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point < 0xE000)) {
    return InvalidArgument("illegal Unicode character {:#x} in a string", code_point);
  }
  AppendUtf8(code_point, out);
  return absl::OkStatus();
}

// One escape of Python; `pos` is behind the backslash.
absl::Status TakeEscape(const std::string& source, size_t& pos, std::string& out) {
  const char c = source[pos++];
  constexpr std::string_view kNames = "nrtabfv\\'\"", kValues = "\n\r\t\a\b\f\v\\'\"";
  if (const size_t i = kNames.find(c); i != std::string_view::npos) {
    out += kValues[i];
    return absl::OkStatus();
  }
  if (c == '\n') return absl::OkStatus();
  if (c == 'x') return TakeHexEscape(source, pos, 2, out);
  if (c == 'u') return TakeHexEscape(source, pos, 4, out);
  if (c == 'U') return TakeHexEscape(source, pos, 8, out);
  if (c == 'N') return InvalidArgument("\\N escapes in strings are not supported");
  if (c >= '0' && c <= '7') {
    uint32_t value = static_cast<uint32_t>(c - '0');
    for (int i = 0; i < 2 && pos < source.size() && source[pos] >= '0' && source[pos] <= '7'; ++i) {
      value = value * 8 + static_cast<uint32_t>(source[pos++] - '0');
    }
    AppendUtf8(value, out);
    return absl::OkStatus();
  }
  out += '\\';
  out += c;
  return absl::OkStatus();
}

absl::StatusOr<Token> TakeString(const std::string& source, size_t& pos) {
  const char quote = source[pos++];
  std::string text;
  while (pos < source.size() && source[pos] != quote) {
    if (source[pos] == '\\' && pos + 1 < source.size()) {
      TANDEM_RETURN_IF_ERROR(TakeEscape(source, ++pos, text));
    } else {
      text += source[pos++];
    }
  }
  if (pos >= source.size()) return InvalidArgument("a string is not closed");
  ++pos;
  return Token{TokenKind::kString, std::move(text), 0};
}

}  // namespace

absl::StatusOr<Token> NextExpressionToken(const std::string& source, size_t& pos) {
  const char c = source[pos];
  if (IsDigit(c)) return TakeNumber(source, pos);
  if (c == '\'' || c == '"') return TakeString(source, pos);
  size_t end = pos;
  while (end < source.size()) {
    size_t next = end;
    if (!IsNameCharacter(NextCodePoint(source, next))) break;
    end = next;
  }
  if (end > pos) {
    Token token{TokenKind::kName, source.substr(pos, end - pos), 0};
    pos = end;
    return token;
  }
  for (const char* symbol : {"//", "**", "==", "!=", ">=", "<="}) {
    if (source.compare(pos, 2, symbol) == 0) {
      pos += 2;
      return Token{TokenKind::kOperator, symbol, 0};
    }
  }
  if (std::string_view("+-/*%~[](){}<>=.:|,;").find(c) == std::string_view::npos) {
    return InvalidArgument("unexpected char '{}'", c);
  }
  ++pos;
  return Token{TokenKind::kOperator, std::string(1, c), 0};
}

}  // namespace tandem::jinja
