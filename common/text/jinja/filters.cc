// Filters on text.

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "common/base/status.h"
#include "common/text/jinja/builtins.h"
#include "common/text/jinja/value/allowance.h"
#include "common/text/jinja/value/operators.h"
#include "common/text/jinja/value/print.h"
#include "common/text/jinja/value/python_text.h"
#include "common/text/jinja/value/value.h"
#include "common/text/unicode/properties.h"
#include "common/text/unicode/regex.h"
#include "common/text/unicode/utf8.h"

namespace tandem::jinja {
namespace {

using Result = absl::StatusOr<Value>;

template <std::string (*kMap)(std::string_view)>
Result MapText(Runtime&, const Value& input, const Args& args) {
  TANDEM_RETURN_IF_ERROR(Bind("filter", args, {}).status());
  return Value::String(kMap(ToText(input)));
}

std::string Same(std::string_view text) { return std::string(text); }

std::string EscapeHtml(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

bool SeparatesTitleWords(char32_t c) {
  return IsPythonSpace(c) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) !=
                                              std::string_view::npos);
}

// Words are separated by white space and - ( { [ <. Of each, as in jinja2, the first character and
// the rest are mapped separately: a sigma that is the whole rest does not count as the end of a
// word.
std::string TitleFilter(std::string_view text) {
  std::string out;
  size_t rest = 0;  // where the part of the word that becomes lower case begins
  bool in_word = false;
  for (size_t pos = 0; pos < text.size();) {
    const size_t start = pos;
    const bool separator = SeparatesTitleWords(NextCodePoint(text, pos));
    if (in_word && !separator) continue;
    out += ToLower(text.substr(rest, start - rest));
    out += separator ? std::string(text.substr(start, pos - start))
                     : ToUpper(text.substr(start, pos - start));
    rest = pos;
    in_word = !separator;
  }
  return out + ToLower(text.substr(rest));
}

std::string UrlEncode(std::string_view text) {
  std::string out;
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain =
        std::isalnum(byte) || std::string_view("_.-~/").find(c) != std::string_view::npos;
    out += byte < 0x80 && plain ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  return out;
}

Result Trim(Runtime&, const Value& input, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("trim", args, {"chars"}));
  std::optional<std::string> characters;
  if (bound[0] != nullptr && !bound[0]->is_none()) {
    TANDEM_ASSIGN_OR_RETURN(characters, bound.Text(0, ""));
  }
  return Value::String(Strip(ToText(input), Side::kBoth, characters));
}

Result ReplaceFilter(Runtime&, const Value& input, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("replace", args, {"old", "new", "count"}, 2));
  int64_t limit = -1;
  if (bound[2] != nullptr && !bound[2]->is_none()) {
    TANDEM_ASSIGN_OR_RETURN(limit, bound.Int(2, -1));
  }
  return Value::String(Replace(ToText(input), ToText(*bound[0]), ToText(*bound[1]), limit));
}

Result Center(Runtime&, const Value& input, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("center", args, {"width"}));
  TANDEM_ASSIGN_OR_RETURN(const int64_t width, bound.Int(0, 80));
  return Value::String(Justify(ToText(input), width, " ", Side::kBoth));
}

Result Format(Runtime&, const Value& input, const Args& args) {
  if (!args.named.empty() && !args.positional.empty()) {
    return InvalidArgument("can't handle positional and keyword arguments at the same time");
  }
  Value values = Value::Tuple(args.positional);
  if (!args.named.empty()) {
    Mapping mapping;
    for (const auto& [name, value] : args.named) mapping.Set(Value::String(name), value);
    values = Value::Map(std::move(mapping));
  }
  TANDEM_ASSIGN_OR_RETURN(std::string text, FormatPercent(ToText(input), values));
  return Value::String(std::move(text));
}

Result Indent(Runtime&, const Value& input, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("indent", args, {"width", "first", "blank"}));
  std::string indention;
  if (bound[0] != nullptr && bound[0]->is_string()) {
    indention = bound[0]->text();
  } else {
    TANDEM_ASSIGN_OR_RETURN(const int64_t width, bound.Int(0, 4));
    indention.assign(static_cast<size_t>(std::clamp<int64_t>(width, 0, 10000)), ' ');
  }
  TANDEM_ASSIGN_OR_RETURN(const Value whole, Apply(Operator::kAdd, input, Value::String("\n")));
  const std::vector<std::string> lines = SplitLines(whole.text(), false);
  std::string out = bound.Flag(1, false) ? indention : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!MayGrow(out, indention.size() + lines[i].size() + 1)) break;
    if (i > 0) out += "\n";
    if (i > 0 && (bound.Flag(2, false) || !lines[i].empty())) out += indention;
    out += lines[i];
  }
  return Value::String(std::move(out));
}

Result Truncate(Runtime&, const Value& input, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound,
                          Bind("truncate", args, {"length", "killwords", "end", "leeway"}));
  TANDEM_ASSIGN_OR_RETURN(const int64_t length, bound.Int(0, 255));
  TANDEM_ASSIGN_OR_RETURN(const std::string end, bound.Text(2, "..."));
  int64_t leeway = 5;
  if (bound[3] != nullptr && !bound[3]->is_none()) {
    TANDEM_ASSIGN_OR_RETURN(leeway, bound.Int(3, 5));
  }
  const int64_t end_length = static_cast<int64_t>(CountCodePoints(end));
  if (length < end_length || leeway < 0) {
    return InvalidArgument("truncate: expected length >= {} and leeway >= 0", end_length);
  }
  const std::u32string text = ToCodePoints(ToText(input));
  const auto size = static_cast<int64_t>(text.size());
  if (size <= length || size - length <= leeway) return Value::String(ToUtf8(text));
  const std::string cut = ToUtf8(text.substr(0, static_cast<size_t>(length - end_length)));
  if (bound.Flag(1, false)) return Value::String(cut + end);
  return Value::String(SplitFromRight(cut, " ", 1)[0] + end);
}

Result WordCount(Runtime&, const Value& input, const Args& args) {
  TANDEM_RETURN_IF_ERROR(Bind("wordcount", args, {}).status());
  TANDEM_ASSIGN_OR_RETURN(const Regex words, Regex::Compile(R"([\p{L}\p{N}_]+)"));
  TANDEM_ASSIGN_OR_RETURN(const auto matches, words.FindAll(ToText(input)));
  return Value::Int(static_cast<int64_t>(matches.size()));
}

Result ToJson(Runtime&, const Value& input, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(
      const Bound bound,
      Bind("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ensure_ascii = bound.Flag(0, false);
  style.sort_keys = bound.Flag(3, false);
  if (bound[1] != nullptr && bound[1]->is_string()) {
    style.indent = bound[1]->text();
  } else if (bound[1] != nullptr && !bound[1]->is_none()) {
    TANDEM_ASSIGN_OR_RETURN(const int64_t width, bound.Int(1, 0));
    style.indent = std::string(static_cast<size_t>(std::clamp<int64_t>(width, 0, 1000)), ' ');
  }
  if (style.indent) style.item_separator = std::string(1, ',');
  if (bound[2] != nullptr && !bound[2]->is_none()) {
    TANDEM_ASSIGN_OR_RETURN(const Values pair, Iterate(*bound[2]));
    if (pair.size() != 2) return InvalidArgument("tojson: separators must be two strings");
    style.item_separator = ToText(pair[0]);
    style.key_separator = ToText(pair[1]);
  }
  TANDEM_ASSIGN_OR_RETURN(std::string text, DumpJson(input, style));
  return Value::String(std::move(text));
}

}  // namespace

const FilterTable& TextFilters() {
  static const FilterTable kTable = {{"capitalize", MapText<Capitalize>},
                                     {"center", Center},
                                     {"e", MapText<EscapeHtml>},
                                     {"escape", MapText<EscapeHtml>},
                                     {"forceescape", MapText<EscapeHtml>},
                                     {"format", Format},
                                     {"indent", Indent},
                                     {"lower", MapText<ToLower>},
                                     {"replace", ReplaceFilter},
                                     {"safe", MapText<Same>},
                                     {"string", MapText<Same>},
                                     {"title", MapText<TitleFilter>},
                                     {"tojson", ToJson},
                                     {"trim", Trim},
                                     {"truncate", Truncate},
                                     {"upper", MapText<ToUpper>},
                                     {"urlencode", MapText<UrlEncode>},
                                     {"wordcount", WordCount}};
  return kTable;
}

// Filters that make or round numbers.

namespace {

using Result = absl::StatusOr<Value>;

std::string WithoutUnderscores(const std::string& text) {
  return Replace(Strip(text, Side::kBoth, std::nullopt), "_", "", -1);
}

std::optional<int64_t> ParseInt(const std::string& text, int base) {
  const std::string digits = WithoutUnderscores(text);
  char* end = nullptr;
  errno = 0;
  const int64_t number = std::strtoll(digits.c_str(), &end, base);
  if (digits.empty() || *end != '\0' || errno == ERANGE) return std::nullopt;
  return number;
}

std::optional<double> ParseFloat(const std::string& text) {
  const std::string digits = WithoutUnderscores(text);
  char* end = nullptr;
  const double number = std::strtod(digits.c_str(), &end);
  const bool hex = digits.find_first_of("xX") != std::string::npos;
  if (digits.empty() || *end != '\0' || hex) return std::nullopt;
  return number;
}

Result Int(Runtime&, const Value& input, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("int", args, {"default", "base"}));
  TANDEM_ASSIGN_OR_RETURN(const int64_t base, bound.Int(1, 10));
  if (base != 0 && (base < 2 || base > 36)) {
    return InvalidArgument("int() base must be >= 2 and <= 36, or 0");
  }
  if (input.is_undefined()) return InvalidArgument("{}", input.undefined_message());
  if (input.is_int()) return input;
  if (input.is(Kind::kBool)) return Value::Int(input.boolean());
  std::optional<double> number;
  if (input.is(Kind::kFloat)) number = input.floating();
  if (input.is_string()) {
    if (const auto parsed = ParseInt(input.text(), static_cast<int>(base))) {
      return Value::Int(*parsed);
    }
    number = ParseFloat(input.text());
  }
  if (number && std::isfinite(*number) && std::fabs(*number) < 9.2e18) {
    return Value::Int(static_cast<int64_t>(*number));
  }
  return bound.Or(0, Value::Int(0));
}

Result Float(Runtime&, const Value& input, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("float", args, {"default"}));
  if (input.is_undefined()) return InvalidArgument("{}", input.undefined_message());
  if (input.is_number()) return Value::Float(AsDouble(input));
  if (input.is_string()) {
    if (const auto parsed = ParseFloat(input.text())) return Value::Float(*parsed);
  }
  return bound.Or(0, Value::Float(0.0));
}

Result Abs(Runtime&, const Value& input, const Args& args) {
  TANDEM_RETURN_IF_ERROR(Bind("abs", args, {}).status());
  if (input.is(Kind::kFloat)) return Value::Float(std::fabs(input.floating()));
  if (!input.is_number())
    return InvalidArgument("bad operand type for abs(): '{}'", TypeName(input));
  TANDEM_ASSIGN_OR_RETURN(const bool negative, Less(input, Value::Int(0)));
  return negative ? Negate(input) : Plus(input);
}

// round(): halves to even, on the exact binary value.
double RoundDecimal(double number, int64_t precision) {
  if (precision < 0) {
    const double scale = std::pow(10.0, -static_cast<double>(precision));
    return std::nearbyint(number / scale) * scale;
  }
  char buffer[512];
  std::snprintf(buffer, sizeof(buffer), "%.*f", static_cast<int>(std::min<int64_t>(precision, 100)),
                number);
  return std::strtod(buffer, nullptr);
}

Result Round(Runtime&, const Value& input, const Args& args) {
  TANDEM_ASSIGN_OR_RETURN(const Bound bound, Bind("round", args, {"precision", "method"}));
  TANDEM_ASSIGN_OR_RETURN(const int64_t precision, bound.Int(0, 0));
  TANDEM_ASSIGN_OR_RETURN(const std::string method, bound.Text(1, "common"));
  if (input.is_undefined()) return InvalidArgument("{}", input.undefined_message());
  if (!input.is_number()) return InvalidArgument("type {} can't be rounded", TypeName(input));
  if (method == "common") {
    if (!input.is(Kind::kFloat) && precision >= 0) return Plus(input);
    return Value::Float(RoundDecimal(AsDouble(input), precision));
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = AsDouble(input) * scale;
  if (method == "ceil") return Value::Float(std::ceil(scaled) / scale);
  if (method == "floor") return Value::Float(std::floor(scaled) / scale);
  return InvalidArgument("method must be common, ceil or floor");
}

}  // namespace

const FilterTable& NumberFilters() {
  static const FilterTable kTable = {
      {"abs", Abs}, {"float", Float}, {"int", Int}, {"round", Round}};
  return kTable;
}

}  // namespace tandem::jinja
