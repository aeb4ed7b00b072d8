#include <cmath>

#include <catch2/catch.hpp>

#include "controller/algorithm/group_scores.h"

namespace tandem {

TEST_CASE("GrpoAdvantages divides by the deviation with n - 1", "[grpo]") {
  // mean 1/4; squares 9/16 + 3/16 = 3/4; deviation sqrt(3/4 / 3) = 1/2
  const auto advantages = GrpoAdvantages({1, 0, 0, 0}, GroupScale::kStandardDeviation);
  REQUIRE(advantages[0] == Approx(0.75 / (0.5 + 1e-6)).epsilon(1e-7));
  REQUIRE(advantages[3] == Approx(-0.25 / (0.5 + 1e-6)).epsilon(1e-7));
}

TEST_CASE("GrpoAdvantages only centres when told so", "[grpo]") {
  REQUIRE(GrpoAdvantages({1, 0, 0, 0}, GroupScale::kNone) ==
          std::vector<float>{0.75f, -0.25f, -0.25f, -0.25f});
}

TEST_CASE("GrpoAdvantages of equal scores are exactly zero, of one score the score", "[grpo]") {
  for (const float advantage : GrpoAdvantages({0.1f, 0.1f, 0.1f}, GroupScale::kStandardDeviation)) {
    REQUIRE(advantage == 0.0f);
  }
  REQUIRE(GrpoAdvantages({2.0f}, GroupScale::kStandardDeviation)[0] ==
          Approx(2.0 / (1 + 1e-6)).epsilon(1e-7));
  REQUIRE(GrpoAdvantages({2.0f}, GroupScale::kNone)[0] == 2.0f);
  REQUIRE(GrpoAdvantages({}, GroupScale::kNone).empty());
}

}  // namespace tandem
