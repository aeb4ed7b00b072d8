// The operators + - * / // % ** and the signs.
#pragma once

#include <absl/status/statusor.h>

#include "common/text/jinja/value/value.h"

namespace tandem::jinja {

enum class Operator { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };

// An integer or a boolean, which counts as one.
bool IsIntegral(const Value& value);
// Of such a value.
int64_t AsInt64(const Value& value);

// InvalidArgument where Python raises, and where an integer leaves 64 bits. `%` on a string
// formats.
absl::StatusOr<Value> Apply(Operator op, const Value& a, const Value& b);

absl::StatusOr<Value> Negate(const Value& value);
absl::StatusOr<Value> Plus(const Value& value);

// Python's `text % values`: values is a tuple, a mapping, or one value.
absl::StatusOr<std::string> FormatPercent(const std::string& text, const Value& values);

}  // namespace tandem::jinja
