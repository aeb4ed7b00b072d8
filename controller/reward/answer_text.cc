#include "controller/reward/answer_text.h"

#include <charconv>
#include <cstdint>
#include <optional>
#include <vector>

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

namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string Strip(const std::string& text) {
  const char* kSpace = " \t\r\n\f\v";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// The run of digits that starts at `digit`, with its minus sign.
std::string IntegerAt(const std::string& text, size_t digit) {
  size_t end = digit;
  while (end < text.size() && IsDigit(text[end])) ++end;
  const bool minus = digit > 0 && text[digit - 1] == '-';
  const bool subtraction = digit > 1 && IsDigit(text[digit - 2]);
  const size_t begin = minus && !subtraction ? digit - 1 : digit;
  return text.substr(begin, end - begin);
}

// Sign and digits without leading zeros; nullopt: `text` is not an integer.
std::optional<std::string> Canonical(const std::string& text) {
  std::string digits = Strip(text);
  bool negative = false;
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) {
    negative = digits[0] == '-';
    digits.erase(0, 1);
  }
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos) {
    return std::nullopt;
  }
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size() - 1));
  return (negative && digits != "0" ? "-" : "") + digits;
}

// Parses all of `text` as digits with thousands separators and an optional fraction.
std::optional<double> ParseNumber(std::string text) {
  std::erase(text, ',');
  if (!text.empty() && text[0] == '+') text.erase(0, 1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

bool ExactMatch(const std::string& response, const std::string& truth) {
  return Strip(response) == Strip(truth);
}

std::optional<std::string> FirstInteger(const std::string& text) {
  const size_t digit = text.find_first_of("0123456789");
  if (digit == std::string::npos) return std::nullopt;
  return IntegerAt(text, digit);
}

std::optional<std::string> LastInteger(const std::string& text) {
  size_t digit = text.find_last_of("0123456789");
  if (digit == std::string::npos) return std::nullopt;
  while (digit > 0 && IsDigit(text[digit - 1])) --digit;
  return IntegerAt(text, digit);
}

bool IntegersEqual(const std::string& a, const std::string& b) {
  const std::optional<std::string> left = Canonical(a), right = Canonical(b);
  return left.has_value() && left == right;
}

std::optional<double> LastNumber(const std::string& text) {
  size_t end = text.find_last_of("0123456789");
  if (end == std::string::npos) return std::nullopt;
  ++end;
  size_t begin = end;
  while (begin > 0 &&
         (IsDigit(text[begin - 1]) || text[begin - 1] == '.' || text[begin - 1] == ',')) {
    --begin;
  }
  // "1.2.3" is not a single number: the longest suffix that is one is used, here 2.3.
  for (size_t from = begin; from < end; ++from) {
    if (!IsDigit(text[from])) continue;
    const std::optional<double> value = ParseNumber(text.substr(from, end - from));
    if (!value.has_value()) continue;
    const bool minus = from > 0 && text[from - 1] == '-' && !(from > 1 && IsDigit(text[from - 2]));
    return minus ? -*value : *value;
  }
  return std::nullopt;
}

std::optional<double> WholeNumber(const std::string& text) { return ParseNumber(Strip(text)); }

std::optional<size_t> BalancedEnd(std::string_view text, size_t from) {
  int64_t open = 0;
  for (size_t i = from; i < text.size(); ++i) {
    if (text[i] == '{') ++open;
    // Only a closing brace ends the box: in "}{" the count passes through zero in between.
    if (text[i] == '}' && --open == 0) return i + 1;
  }
  return std::nullopt;
}

std::optional<std::string> LastBoxed(std::string_view text) {
  constexpr std::string_view kOpen = "\\boxed{";
  const size_t at = text.rfind(kOpen);
  if (at == std::string_view::npos) return std::nullopt;
  const std::optional<size_t> end = BalancedEnd(text, at);
  if (!end) return std::nullopt;
  const size_t inside = at + kOpen.size();
  return std::string(text.substr(inside, *end - 1 - inside));
}

}  // namespace tandem
