// Filters that make or round numbers.
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "common/base/status_macros.h"
#include "common/text/jinja/registry.h"
#include "common/text/jinja/value/arguments.h"
#include "common/text/jinja/value/arithmetic.h"
#include "common/text/jinja/value/compare.h"
#include "common/text/jinja/value/print.h"
#include "common/text/jinja/value/python_text.h"

namespace tandem::jinja {
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
    const double scale = std::pow(10.0, static_cast<double>(-precision));
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
