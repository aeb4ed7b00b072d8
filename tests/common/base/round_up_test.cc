#include <catch2/catch.hpp>

#include "common/base/numeric.h"

namespace tandem {

TEST_CASE("RoundUp goes to the next whole unit and stays on one") {
  REQUIRE(RoundUp(0, 64) == 0);
  REQUIRE(RoundUp(1, 64) == 64);
  REQUIRE(RoundUp(64, 64) == 64);
  REQUIRE(RoundUp(65, 64) == 128);
  REQUIRE(RoundUp(7, 1) == 7);
}

}  // namespace tandem
