// The target of a request: "/a%20path?name=value".
#pragma once

#include <map>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

namespace tandem {

struct HttpTarget {
  std::string path;
  std::multimap<std::string, std::string> query;
};

// Decodes percent signs in both parts, and "+" as a space in the query (WHATWG URL, section 5.1).
// InvalidArgument: no absolute path, a percent sign without two hexadecimal digits, a NUL, a
// segment
// "." or "..", or more than 64 parameters.
absl::StatusOr<HttpTarget> ParseHttpTarget(std::string_view target);

}  // namespace tandem
