// The operators + - * / // % ** and the signs.
#pragma once

#include <absl/status/statusor.h>

#include "common/text/jinja/value/value.h"

namespace tandem::jinja {

enum class Operator { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };

// An integer or a boolean, which counts as one.
bool IsIntegral(const Value& value);
// The value of an integer or boolean.
int64_t AsInt64(const Value& value);

// InvalidArgument where Python raises, and where an integer leaves 64 bits. `%` on a string
// formats.
absl::StatusOr<Value> Apply(Operator op, const Value& a, const Value& b);

absl::StatusOr<Value> Negate(const Value& value);
absl::StatusOr<Value> Plus(const Value& value);

// Python's `text % values`: values is a tuple, a mapping, or one value.
absl::StatusOr<std::string> FormatPercent(const std::string& text, const Value& values);

// Truth, equality, order and membership.

bool Truthy(const Value& value);

// Python's ==: numbers by value (True == 1 == 1.0), mappings without regard to order.
bool Equal(const Value& a, const Value& b);

// Python's <; InvalidArgument between types without an order, or if one is undefined.
absl::StatusOr<bool> Less(const Value& a, const Value& b);

// `item in container`; InvalidArgument where Python raises.
absl::StatusOr<bool> Contains(const Value& container, const Value& item);

// InvalidArgument for what Python cannot hash: lists, mappings, and tuples of these.
absl::Status CheckHashable(const Value& value);

// All items: of a sequence, the keys of a mapping, the characters of a string, the rest of an
// iterator (which is empty afterwards), no item of undefined. InvalidArgument otherwise.
absl::StatusOr<Values> Iterate(const Value& value);

// len(); InvalidArgument for iterators, numbers and None.
absl::StatusOr<int64_t> Length(const Value& value);

// The Python type's name: str, dict, NoneType, ...
std::string TypeName(const Value& value);

// The value of a number. Needs is_number().
double AsDouble(const Value& value);

}  // namespace tandem::jinja
