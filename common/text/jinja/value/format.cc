#include "common/text/jinja/value/format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "common/base/status.h"
#include "common/text/jinja/value/allowance.h"
#include "common/text/jinja/value/operators.h"
#include "common/text/jinja/value/print.h"
#include "common/text/jinja/value/subscript.h"
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
    const size_t wanted = static_cast<size_t>(std::max(spec.precision, 0));
    if (wanted > digits.size()) digits.insert(0, wanted - digits.size(), '0');
    if (spec.thousands) digits = GroupThousands(digits);
    return Pad(SignText(number < 0, spec), digits, spec, spec.align == 0 ? '>' : spec.align);
  }
  if (spec.type != 0 && spec.type != 's') {
    return InvalidArgument("Unknown format code '{}' for object of type '{}'", spec.type,
                           TypeName(value));
  }
  return FormatText(ToText(value), spec);
}

// The two formatting languages: "..." % values and "...".format(values).

namespace {

// Hands out the values of a % operation.
class PercentValues {
 public:
  explicit PercentValues(const Value& values) : values_(values) {}

  absl::StatusOr<Value> Next() {
    if (values_.is_tuple()) {
      if (next_ < values_.sequence().items.size()) return values_.sequence().items[next_++];
    } else if (next_++ == 0) {
      return values_;
    }
    return InvalidArgument("not enough arguments for format string");
  }
  absl::StatusOr<Value> Named(const std::string& key) {
    if (!values_.is(Kind::kMapping)) return InvalidArgument("format requires a mapping");
    named_ = true;
    const Value* value = values_.mapping().Find(std::string_view(key));
    if (value == nullptr) return InvalidArgument("format: no key '{}'", key);
    return *value;
  }
  absl::Status CheckAllUsed() const {
    const size_t count = values_.is_tuple() ? values_.sequence().items.size() : 1;
    // Python omits this check for anything that has items by key or index, except tuples.
    const bool subscriptable =
        values_.is(Kind::kMapping) || values_.is_list() || values_.is_undefined();
    if (named_ || subscriptable || next_ >= count) return absl::OkStatus();
    return InvalidArgument("not all arguments converted during string formatting");
  }

 private:
  const Value& values_;
  size_t next_ = 0;
  bool named_ = false;
};

absl::StatusOr<int> StarOrNumber(const std::string& text, size_t& pos, PercentValues& values) {
  if (pos < text.size() && text[pos] == '*') {
    ++pos;
    TANDEM_ASSIGN_OR_RETURN(const Value value, values.Next());
    if (!value.is_int()) return InvalidArgument("* wants int");
    if (value.integer() <= -kMaxFieldWidth || value.integer() >= kMaxFieldWidth) {
      return InvalidArgument("a width or precision of {} is too large", value.integer());
    }
    return static_cast<int>(value.integer());
  }
  int number = 0;
  while (pos < text.size() && std::isdigit(static_cast<unsigned char>(text[pos])) &&
         number < 10000) {
    number = number * 10 + (text[pos++] - '0');
  }
  return number;
}

absl::StatusOr<std::string> ConvertPercent(Value value, FormatSpec spec) {
  switch (spec.type) {
    case 's':
    case 'r':
    case 'a':
      value = Value::String(spec.type == 's' ? ToText(value) : Repr(value));
      spec.type = 's';
      break;
    case 'c':
      if (value.is_int()) {
        const int64_t c = value.integer();
        if (c < 0 || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) {
          return InvalidArgument("%c arg {} is not a Unicode character", c);
        }
        std::string text;
        AppendUtf8(static_cast<char32_t>(c), text);
        value = Value::String(text);
      }
      spec.type = 's';
      break;
    case 'd':
    case 'i':
    case 'u':
      if (!value.is_number()) {
        return InvalidArgument("%d format: a real number is required, not {}", TypeName(value));
      }
      if (value.is(Kind::kFloat)) {
        if (!(std::fabs(value.floating()) < 9.2e18)) {
          return InvalidArgument("cannot convert float {} to integer", FloatText(value.floating()));
        }
        value = Value::Int(static_cast<int64_t>(value.floating()));
      }
      spec.type = 'd';
      break;
    default:
      if (std::string_view("xXofFeEgG").find(spec.type) == std::string_view::npos) {
        return InvalidArgument("unsupported format character '{}'", spec.type);
      }
      if (!value.is_number())
        return InvalidArgument("must be real number, not {}", TypeName(value));
  }
  if (spec.align == 0) spec.align = '>';
  return FormatValue(value, spec);
}

// One conversion; `pos` is behind its %.
absl::StatusOr<std::string> PercentItem(const std::string& text,
                                        size_t& pos,
                                        PercentValues& values) {
  std::optional<Value> value;
  if (pos < text.size() && text[pos] == '(') {
    const size_t close = text.find(')', pos);
    if (close == std::string::npos) return InvalidArgument("incomplete format key");
    TANDEM_ASSIGN_OR_RETURN(value, values.Named(text.substr(pos + 1, close - pos - 1)));
    pos = close + 1;
  }
  FormatSpec spec;
  for (; pos < text.size() && std::string_view("-+ #0").find(text[pos]) != std::string_view::npos;
       ++pos) {
    if (text[pos] == '-') spec.align = '<';
    if (text[pos] == '+' || (text[pos] == ' ' && spec.sign != '+')) spec.sign = text[pos];
    if (text[pos] == '#') spec.alternate = true;
    if (text[pos] == '0') spec.fill = '0';
  }
  TANDEM_ASSIGN_OR_RETURN(spec.width, StarOrNumber(text, pos, values));
  if (pos < text.size() && text[pos] == '.') {
    ++pos;
    TANDEM_ASSIGN_OR_RETURN(spec.precision, StarOrNumber(text, pos, values));
  }
  if (pos >= text.size()) return InvalidArgument("incomplete format");
  spec.type = text[pos++];
  if (spec.align == '<' || std::string_view("src").find(spec.type) != std::string_view::npos) {
    spec.fill = ' ';
  } else if (spec.fill == '0') {
    spec.align = '=';
  }
  if (!value) {
    TANDEM_ASSIGN_OR_RETURN(value, values.Next());
  }
  return ConvertPercent(*value, spec);
}

// `name.attr[index]` of a replacement field.
absl::StatusOr<Value> FieldValue(const std::string& field, const Args& args, size_t& automatic) {
  const size_t end = std::min(field.find_first_of(".["), field.size());
  const std::string name = field.substr(0, end);
  Value value;
  const bool number = name.find_first_not_of("0123456789") == std::string::npos;
  if (number) {
    const size_t index = name.empty() ? automatic++ : std::stoul(name.substr(0, 9));
    if (index >= args.positional.size()) {
      return InvalidArgument("Replacement index {} out of range for positional args tuple", index);
    }
    value = args.positional[index];
  } else {
    bool found = false;
    for (const auto& [key, argument] : args.named) {
      if (key == name) {
        value = argument;
        found = true;
      }
    }
    if (!found) return InvalidArgument("format: no argument '{}'", name);
  }
  for (size_t pos = end; pos < field.size();) {
    const bool bracket = field[pos] == '[';
    const size_t stop = bracket ? field.find(']', pos) : field.find_first_of(".[", pos + 1);
    const std::string key = field.substr(pos + 1, std::min(stop, field.size()) - pos - 1);
    if (!bracket) {
      value = GetAttribute(value, key);
    } else if (!key.empty() && key.find_first_not_of("0123456789") == std::string::npos) {
      TANDEM_ASSIGN_OR_RETURN(value, GetItem(value, Value::Int(std::stol(key.substr(0, 9)))));
    } else {
      TANDEM_ASSIGN_OR_RETURN(value, GetItem(value, Value::String(key)));
    }
    if (value.is_undefined()) return InvalidArgument("{}", value.undefined_message());
    pos = stop == std::string::npos ? field.size() : stop + bracket;
  }
  return value;
}

absl::StatusOr<std::string> BraceItem(std::string item, const Args& args, size_t& automatic) {
  FormatSpec spec;
  if (const size_t colon = item.find(':'); colon != std::string::npos) {
    TANDEM_ASSIGN_OR_RETURN(spec, ParseFormatSpec(item.substr(colon + 1)));
    item.resize(colon);
  }
  char conversion = 0;
  if (item.size() >= 2 && item[item.size() - 2] == '!') {
    conversion = item.back();
    item.resize(item.size() - 2);
  }
  TANDEM_ASSIGN_OR_RETURN(Value value, FieldValue(item, args, automatic));
  if (conversion == 's') value = Value::String(ToText(value));
  if (conversion == 'r') value = Value::String(Repr(value));
  return FormatValue(value, spec);
}

}  // namespace

absl::StatusOr<std::string> FormatPercent(const std::string& text, const Value& values) {
  PercentValues source(values);
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    if (text[pos] != '%') {
      out += text[pos++];
    } else if (pos + 1 < text.size() && text[pos + 1] == '%') {
      out += '%';
      pos += 2;
    } else {
      TANDEM_ASSIGN_OR_RETURN(const std::string item, PercentItem(text, ++pos, source));
      if (!MayGrow(out, item.size())) break;
      out += item;
    }
  }
  TANDEM_RETURN_IF_ERROR(source.CheckAllUsed());
  return out;
}

absl::StatusOr<std::string> FormatBraces(const std::string& text, const Args& args) {
  std::string out;
  size_t automatic = 0;
  for (size_t pos = 0; pos < text.size(); ++pos) {
    const char c = text[pos];
    if ((c == '{' || c == '}') && pos + 1 < text.size() && text[pos + 1] == c) {
      out += c;
      ++pos;
    } else if (c == '}') {
      return InvalidArgument("Single '}}' encountered in format string");
    } else if (c == '{') {
      const size_t close = text.find('}', pos);
      if (close == std::string::npos) {
        return InvalidArgument("expected '}}' before end of string");
      }
      TANDEM_ASSIGN_OR_RETURN(const std::string item,
                              BraceItem(text.substr(pos + 1, close - pos - 1), args, automatic));
      if (!MayGrow(out, item.size())) break;
      out += item;
      pos = close;
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace tandem::jinja
