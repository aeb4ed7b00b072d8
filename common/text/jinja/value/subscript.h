// Attributes, items, slices and calls.
#pragma once

#include <optional>
#include <string>

#include <absl/status/statusor.h>

#include "common/text/jinja/value/value.h"

namespace tandem::jinja {

// value.name: a method first, then the item `name`; undefined where there is neither. An undefined
// value stays undefined here (with its own message); use it through GetAttributeOrFail.
Value GetAttribute(const Value& value, const std::string& name);

// The same for an expression: InvalidArgument if `value` is undefined.
absl::StatusOr<Value> GetAttributeOrFail(const Value& value, const std::string& name);

// value[key]: the item first, then a method of that name; undefined where there is neither.
// InvalidArgument if `value` is undefined.
absl::StatusOr<Value> GetItem(const Value& value, const Value& key);

// value[start:stop:step]; None stands for a missing part. InvalidArgument for what has no slices:
// unlike an item, a slice is never undefined.
absl::StatusOr<Value> GetSlice(const Value& value,
                               const Value& start,
                               const Value& stop,
                               const Value& step);

// A step into a dotted path as filters take it (attribute="a.b.0").
absl::StatusOr<Value> GetPath(const Value& value, const Value& path);

absl::StatusOr<Value> CallValue(Runtime& runtime, const Value& callee, const Args& args);

}  // namespace tandem::jinja
