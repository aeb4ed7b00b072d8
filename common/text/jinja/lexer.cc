#include "common/text/jinja/lexer.h"

#include <algorithm>
#include <optional>

#include "common/base/status.h"
#include "common/text/jinja/value/python_text.h"
#include "common/text/unicode/properties.h"
#include "common/text/unicode/utf8.h"

namespace tandem::jinja {
namespace {

// One newline kind, and no newline at the very end, as jinja reads templates.
std::string NormalizeNewlines(const std::string& source) {
  std::string out;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (pos_ < source_.size()) TANDEM_RETURN_IF_ERROR(Next());
    Add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  // Text up to the next tag, then the tag.
  absl::Status Next() {
    const size_t tag = FindTag();
    if (tag == std::string::npos) {
      AddData(source_.substr(pos_));
      pos_ = source_.size();
      return absl::OkStatus();
    }
    const char type = source_[tag + 1];
    size_t after = tag + 2;
    const char sign = TakeSign(after);
    AddData(StripBeforeTag(source_.substr(pos_, tag - pos_), sign, type != '{'));
    CountLines(pos_, tag);
    pos_ = after;
    if (type == '#') return SkipComment();
    if (type == '%') {
      if (const size_t end = RawTagEnd(after); end != 0) return ReadRaw(end);
    }
    return ReadTag(type == '{');
  }

  size_t FindTag() const {
    for (size_t at = source_.find('{', pos_); at != std::string::npos;
         at = source_.find('{', at + 1)) {
      if (at + 1 < source_.size() && std::string_view("%{#").find(source_[at + 1]) < 3) return at;
    }
    return std::string::npos;
  }

  char TakeSign(size_t& at) const {
    if (at >= source_.size() || (source_[at] != '-' && source_[at] != '+')) return 0;
    return source_[at++];
  }

  // What is left of the text before a tag: `-` takes all white space, lstrip_blocks what stands
  // between the start of the line and the tag.
  std::string StripBeforeTag(const std::string& text, char sign, bool is_block) const {
    if (sign == '-') return Strip(text, Side::kRight, std::nullopt);
    if (sign == '+' || !is_block) return text;
    const size_t line = text.rfind('\n') + 1;  // npos + 1 = 0
    if (line == 0 && !line_starting_) return text;
    const std::string rest = text.substr(line);
    return Strip(rest, Side::kBoth, std::nullopt).empty() ? text.substr(0, line) : text;
  }

  size_t SkipSpaces(size_t at) const {
    while (at < source_.size()) {
      size_t next = at;
      if (!IsPythonSpace(NextCodePoint(source_, next))) break;
      at = next;
    }
    return at;
  }

  // The end of a closing delimiter at `at` (with its sign and what it trims), or 0.
  size_t CloseEnd(size_t at, const char* close, bool trims_newline) const {
    char sign = 0;
    if (at < source_.size() && (source_[at] == '-' || (source_[at] == '+' && trims_newline))) {
      sign = source_[at++];
    }
    if (source_.compare(at, 2, close) != 0) return 0;
    at += 2;
    if (sign == '-') return SkipSpaces(at);
    if (sign == 0 && trims_newline && at < source_.size() && source_[at] == '\n') ++at;
    return at;
  }

  absl::Status SkipComment() {
    for (size_t at = pos_; at < source_.size(); ++at) {
      if (const size_t end = CloseEnd(at, "#}", true); end != 0) {
        MoveTo(end);
        return absl::OkStatus();
      }
    }
    return Error("Missing end of comment tag");
  }

  // `{% raw %}`: where its tag ends, or 0. It trims no newline.
  size_t RawTagEnd(size_t at) const {
    at = SkipSpaces(at);
    if (source_.compare(at, 3, "raw") != 0) return 0;
    return CloseEnd(SkipSpaces(at + 3), "%}", false);
  }

  absl::Status ReadRaw(size_t begin) {
    for (size_t at = source_.find("{%", begin); at != std::string::npos;
         at = source_.find("{%", at + 2)) {
      size_t inside = at + 2;
      const char sign = TakeSign(inside);
      inside = SkipSpaces(inside);
      if (source_.compare(inside, 6, "endraw") != 0) continue;
      const size_t end = CloseEnd(SkipSpaces(inside + 6), "%}", true);
      if (end == 0) continue;
      line_starting_ = source_[begin - 1] == '\n';
      AddData(StripBeforeTag(source_.substr(begin, at - begin), sign, true));
      MoveTo(end);
      return absl::OkStatus();
    }
    return Error("Missing end of raw directive");
  }

  absl::Status ReadTag(bool is_variable) {
    Add(is_variable ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "");
    std::vector<char> open;  // brackets that wait for their partner
    while (true) {
      pos_ = SkipCounting(pos_);
      if (pos_ >= source_.size()) return Error("unexpected end of template");
      const size_t end = open.empty() ? CloseEnd(pos_, is_variable ? "}}" : "%}", !is_variable) : 0;
      if (end != 0) {
        Add(is_variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, "");
        MoveTo(end);
        return absl::OkStatus();
      }
      const size_t start = pos_;
      absl::StatusOr<Token> token = NextExpressionToken(source_, pos_);
      if (!token.ok()) return Error(std::string(token.status().message()));
      token->line = line_;
      CountLines(start, pos_);
      TANDEM_RETURN_IF_ERROR(Balance(*token, open));
      tokens_.push_back(*std::move(token));
    }
  }

  absl::Status Balance(const Token& token, std::vector<char>& open) const {
    if (token.kind != TokenKind::kOperator || token.text.size() != 1) return absl::OkStatus();
    const char c = token.text[0];
    if (c == '(') open.push_back(')');
    if (c == '[') open.push_back(']');
    if (c == '{') open.push_back('}');
    if (c != ')' && c != ']' && c != '}') return absl::OkStatus();
    if (open.empty()) return Error(fmt::format("unexpected '{}'", c));
    if (open.back() != c)
      return Error(fmt::format("unexpected '{}', expected '{}'", c, open.back()));
    open.pop_back();
    return absl::OkStatus();
  }

  size_t SkipCounting(size_t at) {
    const size_t end = SkipSpaces(at);
    CountLines(at, end);
    return end;
  }

  void MoveTo(size_t end) {
    CountLines(pos_, end);
    line_starting_ = source_[end - 1] == '\n';
    pos_ = end;
  }

  void CountLines(size_t begin, size_t end) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(begin),
                                         source_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
  }

  void Add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void AddData(std::string text) {
    if (!text.empty()) Add(TokenKind::kData, std::move(text));
  }
  absl::Status Error(const std::string& message) const {
    return InvalidArgument("line {}: {}", line_, message);
  }

  const std::string source_;
  size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // whether what was read last ended a line
  std::vector<Token> tokens_;
};

}  // namespace

absl::StatusOr<std::vector<Token>> Tokenize(const std::string& source) {
  if (!IsValidUtf8(source)) return InvalidArgument("the template is not valid UTF-8");
  return Lexer(NormalizeNewlines(source)).Run();
}

namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// \w: letters, digits, underscore.
bool IsNameCharacter(char32_t c) {
  if (c < 0x80) {
    return c == '_' || IsDigit(static_cast<char>(c)) || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z');
  }
  return IsLetter(c) || IsNumber(c);
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
