#include "common/text/jinja/value/operators.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/status.h"
#include "common/text/jinja/value/allowance.h"
#include "common/text/jinja/value/python_text.h"
#include "common/text/unicode/utf8.h"

namespace tandem::jinja {
namespace {

constexpr int64_t kMaxRepeatedBytes = 64 << 20;
constexpr size_t kCharacterBytes = 64;  // of a character as a value of its own

// The allowance of the rendering is spent, and ends it with a reason of its own.
absl::Status TooMuch() { return CurrentAllowance()->status(); }

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
  const auto total = static_cast<uint64_t>(times * size);
  if (!(value.is_string() ? MayMakeText(total) : MayWork(total * sizeof(Value)))) return TooMuch();
  if (size == 0) return value;
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
  if (a.is_string() && b.is_string()) {
    if (!MayMakeText(a.text().size() + b.text().size())) return TooMuch();
    return Value::String(a.text() + b.text());
  }
  if ((a.is_list() && b.is_list()) || (a.is_tuple() && b.is_tuple())) {
    const size_t count = a.sequence().items.size() + b.sequence().items.size();
    if (!MayWork(count * sizeof(Value))) return TooMuch();
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

namespace {

bool EqualItems(const Values& a, const Values& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!Equal(a[i], b[i])) return false;
  }
  return true;
}

bool EqualMappings(const Mapping& a, const Mapping& b) {
  if (a.items.size() != b.items.size()) return false;
  for (const auto& [key, value] : a.items) {
    const Value* other = b.Find(key);
    if (other == nullptr || !Equal(value, *other)) return false;
  }
  return true;
}

absl::StatusOr<bool> LessItems(const Values& a, const Values& b) {
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (!Equal(a[i], b[i])) return Less(a[i], b[i]);
  }
  return a.size() < b.size();
}

Values Characters(const std::string& text) {
  Values items;
  for (size_t pos = 0; pos < text.size();) {
    const size_t start = pos;
    NextCodePoint(text, pos);
    items.push_back(Value::String(text.substr(start, pos - start)));
  }
  return items;
}

}  // namespace

bool Truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.boolean();
    case Kind::kInt:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.floating() != 0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kSequence:
      return !value.sequence().items.empty();
    case Kind::kMapping:
      return !value.mapping().items.empty();
    case Kind::kIterator:
    case Kind::kObject:
      return true;
  }
  return false;
}

bool Equal(const Value& a, const Value& b) {
  // A part that values share is compared once per occurrence, which can take practically forever.
  if (!MayWork(16)) return false;
  if (a.is_number() && b.is_number()) {
    if (IsIntegral(a) && IsIntegral(b)) return AsInt64(a) == AsInt64(b);
    return AsDouble(a) == AsDouble(b);
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return a.text().size() == b.text().size() && MayWork(a.text().size()) && a.text() == b.text();
    case Kind::kSequence:
      return (a.sequence().type == b.sequence().type || (a.is_tuple() && b.is_tuple())) &&
             EqualItems(a.sequence().items, b.sequence().items);
    case Kind::kMapping:
      return EqualMappings(a.mapping(), b.mapping());
    default:
      return a.IsSame(b);
  }
}

absl::StatusOr<bool> Less(const Value& a, const Value& b) {
  if (!MayWork(16)) return TooMuch();
  for (const Value* v : {&a, &b}) {
    if (v->is_undefined()) return InvalidArgument("{}", v->undefined_message());
  }
  if (a.is_number() && b.is_number()) {
    if (IsIntegral(a) && IsIntegral(b)) return AsInt64(a) < AsInt64(b);
    return AsDouble(a) < AsDouble(b);
  }
  // UTF-8 bytes have the order of the code points.
  if (a.is_string() && b.is_string()) {
    if (!MayWork(std::min(a.text().size(), b.text().size()))) return TooMuch();
    return a.text() < b.text();
  }
  if ((a.is_list() && b.is_list()) || (a.is_tuple() && b.is_tuple())) {
    return LessItems(a.sequence().items, b.sequence().items);
  }
  return InvalidArgument("'<' not supported between instances of '{}' and '{}'", TypeName(a),
                         TypeName(b));
}

absl::StatusOr<bool> Contains(const Value& container, const Value& item) {
  if (container.is_string()) {
    if (item.is_undefined()) return InvalidArgument("{}", item.undefined_message());
    if (!item.is_string()) {
      return InvalidArgument("'in <string>' requires string as left operand, not {}",
                             TypeName(item));
    }
    return FindText(container.text(), item.text()) != std::string::npos;
  }
  if (container.is(Kind::kMapping)) {
    TANDEM_RETURN_IF_ERROR(CheckHashable(item));
    return container.mapping().Find(item) != nullptr;
  }
  TANDEM_ASSIGN_OR_RETURN(const Values items, Iterate(container));
  for (const Value& candidate : items) {
    if (Equal(candidate, item)) return true;
  }
  return false;
}

absl::Status CheckHashable(const Value& value) {
  if (!MayWork(16)) return TooMuch();
  if (value.is(Kind::kMapping) || value.is_list()) {
    return InvalidArgument("unhashable type: '{}'", TypeName(value));
  }
  if (value.is_tuple()) {
    for (const Value& item : value.sequence().items) TANDEM_RETURN_IF_ERROR(CheckHashable(item));
  }
  return absl::OkStatus();
}

absl::StatusOr<Values> Iterate(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return Values();
    case Kind::kString:
      if (!MayWork(value.text().size() * kCharacterBytes)) return TooMuch();
      return Characters(value.text());
    case Kind::kSequence:
      if (!MayWork(value.sequence().items.size() * sizeof(Value))) return TooMuch();
      return value.sequence().items;
    case Kind::kMapping: {
      if (!MayWork(value.mapping().items.size() * sizeof(Value))) return TooMuch();
      Values keys;
      for (const auto& [key, unused] : value.mapping().items) keys.push_back(key);
      return keys;
    }
    case Kind::kIterator: {
      if (!MayWork(value.iterator().items.size() * sizeof(Value))) return TooMuch();
      Iterator& it = value.iterator();
      Values rest(it.items.begin() + static_cast<std::ptrdiff_t>(it.next), it.items.end());
      it.next = it.items.size();
      return rest;
    }
    default:
      return InvalidArgument("'{}' object is not iterable", TypeName(value));
  }
}

absl::StatusOr<int64_t> Length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return static_cast<int64_t>(CountCodePoints(value.text()));
    case Kind::kSequence:
      return static_cast<int64_t>(value.sequence().items.size());
    case Kind::kMapping:
      return static_cast<int64_t>(value.mapping().items.size());
    case Kind::kObject:
      if (const auto length = value.object().GetAttribute("length"); length && length->is_int()) {
        return length->integer();
      }
      [[fallthrough]];
    default:
      return InvalidArgument("object of type '{}' has no len()", TypeName(value));
  }
}

std::string TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kMapping:
      return "dict";
    case Kind::kIterator:
      return "generator";
    case Kind::kObject:
      return value.object().TypeName();
    case Kind::kSequence:
      break;
  }
  static constexpr const char* kNames[] = {"list",      "tuple",       "tuple",     "range",
                                           "dict_keys", "dict_values", "dict_items"};
  return kNames[static_cast<int>(value.sequence().type)];
}

double AsDouble(const Value& value) {
  if (value.is(Kind::kBool)) return value.boolean() ? 1.0 : 0.0;
  if (value.is_int()) return static_cast<double>(value.integer());
  return value.floating();
}

}  // namespace tandem::jinja
