#include <catch2/catch.hpp>

#include "controller/reward/answer_text.h"

using namespace tandem;  // NOLINT(google-build-using-namespace)

TEST_CASE("LastInteger reads the final answer of a sum", "[reward][answer_match]") {
  REQUIRE(LastInteger("9 + 4 = 13") == "13");
  REQUIRE(LastInteger("The answer is 13.") == "13");
  REQUIRE(LastInteger("3 - 8 = -5") == "-5");
  REQUIRE(LastInteger("8-3") == "3");
  REQUIRE(LastInteger("-7") == "-7");
  REQUIRE_FALSE(LastInteger("none").has_value());
  REQUIRE_FALSE(LastInteger("").has_value());
}

TEST_CASE("FirstInteger reads the number that comes first", "[reward][answer_match]") {
  REQUIRE(FirstInteger("12 is larger than 7") == "12");
  REQUIRE(FirstInteger("-2 or 3") == "-2");
}

TEST_CASE("IntegersEqual ignores how an integer is written", "[reward][answer_match]") {
  REQUIRE(IntegersEqual("007", "7"));
  REQUIRE(IntegersEqual("-0", "0"));
  REQUIRE(IntegersEqual("+5", " 5 "));
  REQUIRE_FALSE(IntegersEqual("5", "-5"));
  REQUIRE_FALSE(IntegersEqual("", "0"));
  REQUIRE_FALSE(IntegersEqual("5.0", "5"));
  REQUIRE(IntegersEqual("123456789012345678901234567890", "123456789012345678901234567890"));
}

TEST_CASE("LastNumber reads separators, fractions and signs", "[reward][answer_match]") {
  REQUIRE(LastNumber("costs $1,234.50 today") == 1234.5);
  REQUIRE(LastNumber("it is -3.25") == -3.25);
  REQUIRE(LastNumber("10-3") == 3.0);
  REQUIRE(LastNumber("version 1.2.3") == 2.3);
  REQUIRE_FALSE(LastNumber("no digits.").has_value());
  REQUIRE(WholeNumber(" 42 ") == 42.0);
  REQUIRE_FALSE(WholeNumber("42 apples").has_value());
}

TEST_CASE("ExactMatch ignores surrounding white space only", "[reward][answer_match]") {
  REQUIRE(ExactMatch(" yes\n", "yes"));
  REQUIRE_FALSE(ExactMatch("Yes", "yes"));
}
