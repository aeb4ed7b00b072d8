#include "controller/reward/scorers/prime_math.h"

#include <catch2/catch.hpp>

using namespace tandem;  // NOLINT(google-build-using-namespace)

TEST_CASE("prime_math opens an enclosing text and keeps what has no normal form",
          "[reward][prime]") {
  REQUIRE(NormalizePrimeAnswer(" \\text{ Monday } ") == "Monday");
  REQUIRE(NormalizePrimeAnswer("\\text{a}{b}") == "a}{b");
  REQUIRE(NormalizePrimeAnswer("\\text{}") == "\\text{}");
  REQUIRE(NormalizePrimeAnswer("\\text{5}cm") == "\\text{5}cm");
  REQUIRE(NormalizePrimeAnswer("\\frac12") == "\\frac{1}{2}");
  REQUIRE(NormalizePrimeAnswer(" \\sqrt ") == "\\sqrt");
  REQUIRE(NormalizePrimeAnswer("\\text{\\frac}") == "\\frac");
  REQUIRE(NormalizePrimeAnswer("").empty());
}

TEST_CASE("prime_math finds the answer in a sentence or a box", "[reward][prime]") {
  REQUIRE(ExtractPrimeAnswer("First 3. Then the ANSWER IS 7") == "7");
  REQUIRE(ExtractPrimeAnswer("so 12 is the answer") == "so 12");
  REQUIRE(ExtractPrimeAnswer("we have $\\boxed{ x = 7 }$.") == "7");
  REQUIRE(ExtractPrimeAnswer("\\boxed{1} or \\fbox{2}") == "1");
  REQUIRE(ExtractPrimeAnswer("only \\fbox{2}") == "2");
  REQUIRE(ExtractPrimeAnswer("\\boxed{}") == "\\boxed{}");
  REQUIRE(ExtractPrimeAnswer("It is 5. And more") == "5");
  REQUIRE(ExtractPrimeAnswer("").empty());
}

TEST_CASE("prime_math compares normal forms", "[reward][prime]") {
  REQUIRE(ScorePrimeMath("The answer is $\\boxed{1/2}$", "\\frac12").score == 1);
  REQUIRE(ScorePrimeMath("The answer is $\\boxed{1/2}$", "\\frac12").pred == "\\frac{1}{2}");
  REQUIRE(ScorePrimeMath("The answer is 3", "4").score == 0);
  // verl's algebra would find these equal.
  REQUIRE(ScorePrimeMath("\\boxed{x+1}", "1+x").score == 0);
}
