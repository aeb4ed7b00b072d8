#include "controller/reward/answer_match.h"

#include <charconv>
#include <vector>

namespace tandem {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string Strip(const std::string& text) {
  const char* kSpace = " \t\r\n\f\v";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// [begin, end) of the run of digits that starts at `digit`, with its sign.
std::string IntegerAt(const std::string& text, size_t digit) {
  size_t end = digit;
  while (end < text.size() && IsDigit(text[end])) ++end;
  const bool minus = digit > 0 && text[digit - 1] == '-';
  const bool subtraction = digit > 1 && IsDigit(text[digit - 2]);
  const size_t begin = minus && !subtraction ? digit - 1 : digit;
  return text.substr(begin, end - begin);
}

// Sign and digits without leading zeros; none if `text` is no integer.
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

// Parses digits with thousands separators and an optional fraction, all of `text`.
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
  // "3, 4" or "1.2.3" are no single number: keep the digits after the last separator then.
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

}  // namespace tandem
