#include "controller/reward/scorers/gsm8k.h"

#include <catch2/catch.hpp>

#include "controller/reward/overlong.h"

using namespace tandem;  // NOLINT(google-build-using-namespace)

TEST_CASE("Strict GSM8K takes the last marked answer without commas", "[reward][gsm8k]") {
  REQUIRE(ExtractGsm8kAnswer("#### 3\n#### 1,234", Gsm8kMethod::kStrict) == "1234");
  REQUIRE_FALSE(ExtractGsm8kAnswer("####7", Gsm8kMethod::kStrict).has_value());
  REQUIRE_FALSE(ExtractGsm8kAnswer("#### ", Gsm8kMethod::kStrict).has_value());
}

TEST_CASE("Flexible GSM8K takes the last number and skips a lone point", "[reward][gsm8k]") {
  REQUIRE(ExtractGsm8kAnswer("5 apples and 6 pears .", Gsm8kMethod::kFlexible) == "6");
  REQUIRE(ExtractGsm8kAnswer("5. And . that", Gsm8kMethod::kFlexible) == "5.");
  REQUIRE(ExtractGsm8kAnswer("No number. None.", Gsm8kMethod::kFlexible) == ".");
  REQUIRE(ScoreGsm8k("maybe 5", "6", Gsm8kMethod::kFlexible, 0.1) == 0.1);
  REQUIRE(ScoreGsm8k("nothing", "6", Gsm8kMethod::kFlexible, 0.1) == 0.0);
}

TEST_CASE("GSM8K looks at the last 300 code points, not bytes", "[reward][gsm8k]") {
  std::string wide;
  for (int i = 0; i < 295; ++i) wide += "é";  // two bytes each
  REQUIRE(ExtractGsm8kAnswer("x #### 8" + wide, Gsm8kMethod::kStrict) == std::nullopt);
  REQUIRE(ExtractGsm8kAnswer("#### 8" + wide.substr(0, 2 * 290), Gsm8kMethod::kStrict) == "8");
}

TEST_CASE("OverlongPenalty grows linearly inside the buffer", "[reward][overlong]") {
  const OverlongPenalty penalty = OverlongPenalty::Create(16, 4, 1.0).value();
  REQUIRE(penalty(12) == 0.0);
  REQUIRE(penalty(13) == -0.25);
  REQUIRE(penalty(16) == -1.0);
  REQUIRE_FALSE(OverlongPenalty::Create(8, 0, 1.0).ok());
  REQUIRE_FALSE(OverlongPenalty::Create(4, 8, 1.0).ok());
}
