#include "common/text/jinja/value/arithmetic.h"

#include <cmath>
#include <limits>

#include "common/base/status_macros.h"
#include "common/text/jinja/value/compare.h"

namespace tandem::jinja {
namespace {

constexpr int64_t kMaxRepeatedBytes = 64 << 20;

const char* Symbol(Operator op) {
  static constexpr const char* kSymbols[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
  return kSymbols[static_cast<int>(op)];
}

absl::Status TooLarge() {
  return InvalidArgument("integer result beyond 64 bits is not supported");
}

absl::StatusOr<Value> IntegerPower(int64_t base, int64_t exponent) {
  int64_t result = 1;
  for (int64_t i = 0; i < exponent; ++i) {
    if (result == 0 || (result == 1 && base == 1)) break;
    if (base == -1 && i >= 2) return Value::Int(exponent % 2 == 0 ? 1 : -1);
    if (__builtin_mul_overflow(result, base, &result)) return TooLarge();
  }
  return Value::Int(result);
}

absl::StatusOr<Value> Integers(Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Operator::kAdd:
      return __builtin_add_overflow(a, b, &result) ? absl::StatusOr<Value>(TooLarge())
                                                   : Value::Int(result);
    case Operator::kSubtract:
      return __builtin_sub_overflow(a, b, &result) ? absl::StatusOr<Value>(TooLarge())
                                                   : Value::Int(result);
    case Operator::kMultiply:
      return __builtin_mul_overflow(a, b, &result) ? absl::StatusOr<Value>(TooLarge())
                                                   : Value::Int(result);
    case Operator::kPower:
      if (b >= 0) return IntegerPower(a, b);
      if (a == 0) return InvalidArgument("0.0 cannot be raised to a negative power");
      return Value::Float(std::pow(static_cast<double>(a), static_cast<double>(b)));
    default:
      break;
  }
  if (b == 0) return InvalidArgument("division by zero");
  if (op == Operator::kDivide) {
    return Value::Float(static_cast<double>(a) / static_cast<double>(b));
  }
  if (a == std::numeric_limits<int64_t>::min() && b == -1) {
    return op == Operator::kModulo ? absl::StatusOr<Value>(Value::Int(0)) : TooLarge();
  }
  // Python rounds towards minus infinity; the remainder has the divisor's sign.
  int64_t quotient = a / b, remainder = a % b;
  if (remainder != 0 && ((remainder < 0) != (b < 0))) {
    --quotient;
    remainder += b;
  }
  return Value::Int(op == Operator::kFloorDivide ? quotient : remainder);
}

absl::StatusOr<Value> Floats(Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return Value::Float(a + b);
    case Operator::kSubtract:
      return Value::Float(a - b);
    case Operator::kMultiply:
      return Value::Float(a * b);
    case Operator::kPower:
      return Value::Float(std::pow(a, b));
    default:
      break;
  }
  if (b == 0) return InvalidArgument("float division by zero");
  if (op == Operator::kDivide) return Value::Float(a / b);
  double remainder = std::fmod(a, b);
  if (remainder != 0 && ((remainder < 0) != (b < 0))) remainder += b;
  if (op == Operator::kModulo) return Value::Float(remainder);
  return Value::Float(std::floor((a - remainder) / b + 0.5));
}

absl::StatusOr<Value> Repeat(const Value& value, int64_t times) {
  times = std::max<int64_t>(times, 0);
  const int64_t size =
      static_cast<int64_t>(value.is_string() ? value.text().size() : value.sequence().items.size());
  if (size > 0 && times > kMaxRepeatedBytes / size) {
    return InvalidArgument("a repetition of {} x {} items is too large", times, size);
  }
  if (value.is_string()) {
    std::string out;
    for (int64_t i = 0; i < times; ++i) out += value.text();
    return Value::String(std::move(out));
  }
  Values items;
  for (int64_t i = 0; i < times; ++i) {
    items.insert(items.end(), value.sequence().items.begin(), value.sequence().items.end());
  }
  return Value::Of(value.sequence().type, std::move(items));
}

bool IsRepeatable(const Value& v) { return v.is_string() || v.is_list() || v.is_tuple(); }

absl::StatusOr<Value> Concatenate(const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) return Value::String(a.text() + b.text());
  if ((a.is_list() && b.is_list()) || (a.is_tuple() && b.is_tuple())) {
    Values items = a.sequence().items;
    items.insert(items.end(), b.sequence().items.begin(), b.sequence().items.end());
    return Value::Of(a.sequence().type, std::move(items));
  }
  if (IsRepeatable(a)) {
    return InvalidArgument("can only concatenate {} (not \"{}\") to {}", TypeName(a), TypeName(b),
                           TypeName(a));
  }
  return InvalidArgument("unsupported operand type(s) for +: '{}' and '{}'", TypeName(a),
                         TypeName(b));
}

}  // namespace

bool IsIntegral(const Value& value) { return value.is_int() || value.is(Kind::kBool); }
int64_t AsInt64(const Value& value) { return value.is_int() ? value.integer() : value.boolean(); }

absl::StatusOr<Value> Apply(Operator op, const Value& a, const Value& b) {
  if (a.is_undefined()) return InvalidArgument("{}", a.undefined_message());
  if (a.is_string() && op == Operator::kModulo) {
    TANDEM_ASSIGN_OR_RETURN(std::string text, FormatPercent(a.text(), b));
    return Value::String(std::move(text));
  }
  if (b.is_undefined()) return InvalidArgument("{}", b.undefined_message());
  if (IsIntegral(a) && IsIntegral(b)) return Integers(op, AsInt64(a), AsInt64(b));
  if (a.is_number() && b.is_number()) return Floats(op, AsDouble(a), AsDouble(b));
  if (op == Operator::kAdd) return Concatenate(a, b);
  if (op == Operator::kMultiply) {
    if (IsRepeatable(a) && IsIntegral(b)) return Repeat(a, AsInt64(b));
    if (IsIntegral(a) && IsRepeatable(b)) return Repeat(b, AsInt64(a));
  }
  return InvalidArgument("unsupported operand type(s) for {}: '{}' and '{}'", Symbol(op),
                         TypeName(a), TypeName(b));
}

absl::StatusOr<Value> Negate(const Value& value) {
  if (value.is(Kind::kFloat)) return Value::Float(-value.floating());
  if (IsIntegral(value)) return Integers(Operator::kSubtract, 0, AsInt64(value));
  if (value.is_undefined()) return InvalidArgument("{}", value.undefined_message());
  return InvalidArgument("bad operand type for unary -: '{}'", TypeName(value));
}

absl::StatusOr<Value> Plus(const Value& value) {
  if (value.is(Kind::kFloat)) return value;
  if (IsIntegral(value)) return Value::Int(AsInt64(value));
  if (value.is_undefined()) return InvalidArgument("{}", value.undefined_message());
  return InvalidArgument("bad operand type for unary +: '{}'", TypeName(value));
}

}  // namespace tandem::jinja
