#include "common/formats/free_space.h"

#include <catch2/catch.hpp>

#include "tests/support/temp_dir.h"

namespace tandem {

TEST_CASE("Free disk is what the system says, and unknown where it says nothing", "[files]") {
  const testing::TempDir dir;
  REQUIRE(FreeBytesIn(dir.path()).value() > 0);
  REQUIRE_FALSE(FreeBytesIn("/no/such/place"));
}

}  // namespace tandem
