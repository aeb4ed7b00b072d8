// Queries of tests on a text and on a list of lines.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <catch2/catch.hpp>

namespace tandem::testing {

inline bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline std::string Message(const absl::Status& status) { return std::string(status.message()); }

// Whether the message of `status` has `part`.
inline bool Says(const absl::Status& status, const std::string& part) {
  return Has(Message(status), part);
}

inline void RequireSaid(const std::string& said, const std::vector<std::string>& parts) {
  INFO(said);
  for (const std::string& part : parts) {
    INFO(part);
    REQUIRE(said.find(part) != std::string::npos);
  }
}

// How often `part` stands in `text`.
inline int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

inline std::string Repeat(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

// How many of `lines` are `line`.
inline int64_t CountOf(const std::vector<std::string>& lines, const std::string& line) {
  return std::count(lines.begin(), lines.end(), line);
}

// Where `line` stands first at or after `from`; requires that it does.
inline size_t IndexOf(const std::vector<std::string>& lines,
                      const std::string& line,
                      size_t from = 0) {
  const auto found = std::find(lines.begin() + static_cast<int64_t>(from), lines.end(), line);
  INFO(line);
  REQUIRE(found != lines.end());
  return static_cast<size_t>(found - lines.begin());
}

}  // namespace tandem::testing
