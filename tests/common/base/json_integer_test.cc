#include "common/base/json_integer.h"

#include <cstdint>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace tandem {

using Catch::Matchers::Contains;
using nlohmann::json;

TEST_CASE("whole numbers of JSON are taken up to the ends of their type") {
  REQUIRE(IntegerOf<int32_t>(json::parse("-2147483648")) == INT32_MIN);
  REQUIRE(IntegerOf<int64_t>(json::parse("9223372036854775807")) == INT64_MAX);
  REQUIRE(IntegerOf<uint64_t>(json::parse("18446744073709551615")) == UINT64_MAX);
  REQUIRE(IntegersOf<int32_t>(json::parse("[1, -2]")) == std::vector<int32_t>{1, -2});
}

TEST_CASE("numbers that are not whole, or do not fit, are refused and not turned into others") {
  for (const char* text : {"452e12", "1.5", "1e400", "2147483648", "-2147483649", "\"1\"", "null",
                           "[1]", "18446744073709551616"}) {
    CAPTURE(text);
    const json value = json::parse(text, nullptr, false);
    if (value.is_discarded()) continue;  // what the parser refuses itself
    REQUIRE_THROWS_AS(IntegerOf<int32_t>(value), json::type_error);
  }
  REQUIRE_THROWS_WITH(IntegerOf<int32_t>(json::parse("452e12")),
                      Contains("must be a whole number from -2147483648 to 2147483647"));
  REQUIRE_THROWS_AS(IntegerOf<uint64_t>(json::parse("-1")), json::type_error);
  REQUIRE_THROWS_AS(IntegersOf<int32_t>(json::parse("1")), json::type_error);
  REQUIRE_THROWS_AS(IntegersOf<int32_t>(json::parse("[1, 1e30]")), json::type_error);
}

}  // namespace tandem
