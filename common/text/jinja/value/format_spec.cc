#include "common/text/jinja/value/format_spec.h"

#include <cmath>
#include <cstdio>

#include "common/base/status_macros.h"
#include "common/text/jinja/value/compare.h"
#include "common/text/jinja/value/print.h"
#include "common/text/unicode/utf8.h"

namespace tandem::jinja {
namespace {

constexpr int kMaxFieldWidth = 100000;

int ReadNumber(const std::string& text, size_t& pos) {
  int number = 0;
  while (pos < text.size() && text[pos] >= '0' && text[pos] <= '9' && number < kMaxFieldWidth) {
    number = number * 10 + (text[pos++] - '0');
  }
  return number;
}

std::string GroupThousands(const std::string& digits) {
  const size_t point = std::min(digits.find('.'), digits.size());
  std::string out;
  for (size_t i = 0; i < point; ++i) {
    if (i > 0 && (point - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out + digits.substr(point);
}

// Digits without sign.
std::string IntegerDigits(uint64_t magnitude, const FormatSpec& spec) {
  switch (spec.type) {
    case 'x':
      return (spec.alternate ? "0x" : "") + fmt::format("{:x}", magnitude);
    case 'X':
      return (spec.alternate ? "0X" : "") + fmt::format("{:X}", magnitude);
    case 'o':
      return (spec.alternate ? "0o" : "") + fmt::format("{:o}", magnitude);
    case 'b':
      return (spec.alternate ? "0b" : "") + fmt::format("{:b}", magnitude);
    default:
      return std::to_string(magnitude);
  }
}

std::string FloatDigits(double magnitude, const FormatSpec& spec) {
  char buffer[512];
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  switch (spec.type) {
    case 'e':
      std::snprintf(buffer, sizeof(buffer), "%.*e", precision, magnitude);
      break;
    case 'E':
      std::snprintf(buffer, sizeof(buffer), "%.*E", precision, magnitude);
      break;
    case 'g':
      std::snprintf(buffer, sizeof(buffer), "%.*g", precision, magnitude);
      break;
    case 'G':
      std::snprintf(buffer, sizeof(buffer), "%.*G", precision, magnitude);
      break;
    case '%':
      std::snprintf(buffer, sizeof(buffer), "%.*f%%", precision, magnitude * 100);
      break;
    case 0:
      if (spec.precision < 0) return FloatText(magnitude);
      std::snprintf(buffer, sizeof(buffer), "%.*g", precision, magnitude);
      break;
    default:
      std::snprintf(buffer, sizeof(buffer), "%.*f", precision, magnitude);
  }
  return buffer;
}

std::string Pad(const std::string& sign,
                const std::string& body,
                const FormatSpec& spec,
                char align) {
  const int length = static_cast<int>(CountCodePoints(body) + sign.size());
  if (length >= spec.width) return sign + body;
  const int missing = spec.width - length;
  const auto fill = [&spec](int count) {
    return std::string(static_cast<size_t>(count), spec.fill);
  };
  switch (align) {
    case '<':
      return sign + body + fill(missing);
    case '^':
      return fill(missing / 2) + sign + body + fill(missing - missing / 2);
    case '=':
      return sign + fill(missing) + body;
    default:
      return fill(missing) + sign + body;
  }
}

std::string SignText(bool negative, const FormatSpec& spec) {
  if (negative) return "-";
  return spec.sign == '-' ? "" : std::string(1, spec.sign);
}

bool IsFloatType(char type) {
  return std::string_view("fFeEgG%").find(type) != std::string_view::npos && type != 0;
}

std::string FormatText(const std::string& whole, const FormatSpec& spec) {
  std::string text = whole;
  if (spec.precision >= 0) {
    text = ToUtf8(ToCodePoints(whole).substr(0, static_cast<size_t>(spec.precision)));
  }
  return Pad("", text, spec, spec.align == 0 ? '<' : spec.align);
}

}  // namespace

absl::StatusOr<FormatSpec> ParseFormatSpec(const std::string& text) {
  FormatSpec spec;
  size_t pos = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '=' || c == '^'; };
  if (text.size() > 1 && is_align(text[1])) {
    spec.fill = text[0];
    spec.align = text[1];
    pos = 2;
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[0];
    pos = 1;
  }
  const auto take = [&](char c) {
    return pos < text.size() && text[pos] == c ? (++pos, true) : false;
  };
  for (char c : {'+', '-', ' '}) {
    if (take(c)) spec.sign = c;
  }
  spec.alternate = take('#');
  if (take('0') && spec.align == 0) {
    spec.fill = '0';
    spec.align = '=';
  }
  spec.width = ReadNumber(text, pos);
  spec.thousands = take(',');
  if (take('.')) spec.precision = ReadNumber(text, pos);
  if (pos < text.size()) spec.type = text[pos++];
  if (pos < text.size() || spec.width >= kMaxFieldWidth || spec.precision >= 400) {
    return InvalidArgument("Invalid format specifier '{}'", text);
  }
  return spec;
}

absl::StatusOr<std::string> FormatValue(const Value& value, const FormatSpec& spec) {
  if (value.is_number() && IsFloatType(spec.type)) {
    const double number = AsDouble(value);
    std::string digits = FloatDigits(std::fabs(number), spec);
    if (spec.thousands) digits = GroupThousands(digits);
    return Pad(SignText(std::signbit(number), spec), digits, spec,
               spec.align == 0 ? '>' : spec.align);
  }
  if (value.is(Kind::kFloat) && spec.type == 0) {
    std::string digits = FloatDigits(std::fabs(value.floating()), spec);
    if (spec.thousands) digits = GroupThousands(digits);
    return Pad(SignText(std::signbit(value.floating()), spec), digits, spec,
               spec.align == 0 ? '>' : spec.align);
  }
  const bool integer = value.is_int() || (value.is(Kind::kBool) && spec.type != 0);
  if (integer && spec.type != 's' && spec.type != 'c') {
    const int64_t number = value.is_int() ? value.integer() : value.boolean();
    const uint64_t magnitude =
        number < 0 ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
    std::string digits = IntegerDigits(magnitude, spec);
    while (spec.precision > static_cast<int>(digits.size())) digits.insert(0, "0");
    if (spec.thousands) digits = GroupThousands(digits);
    return Pad(SignText(number < 0, spec), digits, spec, spec.align == 0 ? '>' : spec.align);
  }
  if (spec.type != 0 && spec.type != 's') {
    return InvalidArgument("Unknown format code '{}' for object of type '{}'", spec.type,
                           TypeName(value));
  }
  return FormatText(ToText(value), spec);
}

}  // namespace tandem::jinja
