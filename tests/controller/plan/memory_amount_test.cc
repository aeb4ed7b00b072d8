#include "controller/plan/memory_amount.h"

#include <string>

#include <catch2/catch.hpp>

using namespace tandem;  // NOLINT(google-build-using-namespace)

TEST_CASE("Amounts of memory are read with their units", "[plan]") {
  REQUIRE(ParseBytes("80GiB").value() == int64_t{80} << 30);
  REQUIRE(ParseBytes("512 MiB").value() == 512 << 20);
  REQUIRE(ParseBytes("80GB").value() == 80'000'000'000);
  REQUIRE(ParseBytes("1.5MiB").value() == 1536 << 10);
  REQUIRE(ParseBytes("85899345920").value() == int64_t{80} << 30);
  for (const char* wrong : {"80", "80B", "1000 KB", "", "GiB", "80GiBs", "80 Gi", "80.0.1GiB",
                            "x80GiB", "0GiB", "-1GiB", "9999999999GiB"}) {
    INFO(wrong);
    REQUIRE_FALSE(ParseBytes(wrong).ok());
  }
  for (const char* wrong : {"80 gigs", "80"}) {
    REQUIRE(std::string(ParseBytes(wrong).status().message()).find("80GiB") != std::string::npos);
  }
}
