// str() and repr() of values.
#pragma once

#include <optional>
#include <string>

#include <absl/status/statusor.h>

#include "common/text/jinja/value/value.h"

namespace tandem::jinja {

// What {{ value }} prints; undefined prints as nothing.
std::string ToText(const Value& value);

// How a value looks inside a printed list or mapping: strings quoted and escaped.
std::string Repr(const Value& value);

// repr(float): the shortest digits that give the number back; exponents as 1e-05, 1e+16.
std::string FloatText(double number);

// json.dumps as the `tojson` filter of chat templates calls it.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // one level; none: everything on one line
  std::string item_separator = ", ";  // "," with an indent
  std::string key_separator = ": ";
};

// InvalidArgument for what has no JSON form (undefined, functions).
absl::StatusOr<std::string> DumpJson(const Value& value, const JsonStyle& style);

}  // namespace tandem::jinja
