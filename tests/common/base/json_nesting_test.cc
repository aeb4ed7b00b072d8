#include "common/base/json_nesting.h"

#include <string>

#include <catch2/catch.hpp>

namespace tandem {

TEST_CASE("JSON of 200 levels passes, and one more is refused with the place") {
  REQUIRE(CheckJsonNesting(std::string(200, '[') + std::string(200, ']')).ok());
  const absl::Status status = CheckJsonNesting(std::string(100, '{') + std::string(101, '['));
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE_THAT(std::string(status.message()),
               Catch::Matchers::Contains("more than 200 levels deep, at byte 200"));
}

TEST_CASE("brackets inside texts are not levels, and a text ends where JSON says") {
  REQUIRE(CheckJsonNesting("[\"" + std::string(1000, '[') + "\"]").ok());
  REQUIRE(CheckJsonNesting(R"(["\"[[[", "\\"])" + std::string(199, '[')).ok());
  REQUIRE_FALSE(CheckJsonNesting(R"(["\\")" + std::string(200, '[')).ok());
  REQUIRE(CheckJsonNesting("\"never closed \\").ok());
}

TEST_CASE("lists side by side are not lists in each other") {
  std::string text = "[";
  for (int i = 0; i < 1000; ++i) text += "[],{},";
  REQUIRE(CheckJsonNesting(text).ok());
}

}  // namespace tandem
