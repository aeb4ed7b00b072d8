#include "common/types/ledger_snapshot.h"

#include <catch2/catch.hpp>

namespace tandem {

TEST_CASE("Locations have names that lead back to them, and the device is the rest") {
  for (const Location location : {Location::kDevice, Location::kHost, Location::kFile}) {
    REQUIRE(ParseLocation(LocationName(location)) == location);
  }
  REQUIRE(std::string(LocationName(Location::kFile)) == "file");
  REQUIRE(ParseLocation("elsewhere") == Location::kDevice);
}

}  // namespace tandem
