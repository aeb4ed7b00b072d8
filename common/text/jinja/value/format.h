// Formats numbers and text by a format specification, for both % and str.format().
#pragma once

#include <string>

#include <absl/status/statusor.h>

#include "common/text/jinja/value/value.h"

namespace tandem::jinja {

struct FormatSpec {
  char fill = ' ';
  char align = 0;   // < > = ^, 0: by type
  char sign = '-';  // - + or space
  bool alternate = false;
  bool thousands = false;
  int width = 0;
  int precision = -1;  // -1: by type
  char type = 0;       // s d i f F e E g G x X o b c %, 0: by type
};

// The [[fill]align][sign][#][0][width][,][.precision][type] of str.format().
absl::StatusOr<FormatSpec> ParseFormatSpec(const std::string& text);

// InvalidArgument where the type does not fit the value.
absl::StatusOr<std::string> FormatValue(const Value& value, const FormatSpec& spec);

// Python's str.format() with its arguments.
absl::StatusOr<std::string> FormatBraces(const std::string& text, const Args& args);

}  // namespace tandem::jinja
