// json.dumps as the `tojson` filter of chat templates calls it.
#pragma once

#include <optional>
#include <string>

#include <absl/status/statusor.h>

#include "common/text/jinja/value/value.h"

namespace tandem::jinja {

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
