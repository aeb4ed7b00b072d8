#include "common/net/addresses/announced_address.h"

#include <catch2/catch.hpp>

#include "tests/support/text.h"

namespace tandem {

using testing::Says;

TEST_CASE("All interfaces of a host are told from one address", "[cluster]") {
  REQUIRE(JoinAddress("10.0.0.1", 7) == "10.0.0.1:7");
  REQUIRE(JoinAddress("fd00::1", 7) == "[fd00::1]:7");
  REQUIRE(IsWildcard("0.0.0.0:1"));
  REQUIRE(IsWildcard("[::]:1"));
  REQUIRE(IsWildcard("[0:0:0:0:0:0:0:0]:1"));
  REQUIRE_FALSE(IsWildcard("[::1]:1"));
  REQUIRE_FALSE(IsWildcard("127.0.0.1:1"));
  REQUIRE_FALSE(IsWildcard("unix:/run/c.sock"));
}

TEST_CASE("What is announced is what was asked for, then an interface's, then the route's",
          "[cluster]") {
  const std::string bound = "0.0.0.0:4711", controller = "127.0.0.1:7001";
  REQUIRE(*AnnouncedAddress(bound, {.advertise = "node-7", .interface = "lo"}, controller) ==
          "node-7:4711");
  REQUIRE(*AnnouncedAddress(bound, {.advertise = "fd00::7"}, controller) == "[fd00::7]:4711");
  REQUIRE(*AnnouncedAddress(bound, {.interface = "lo"}, "203.0.113.1:7001") == "127.0.0.1:4711");
  REQUIRE(*AnnouncedAddress(bound, {}, controller) == "127.0.0.1:4711");
  REQUIRE(*AnnouncedAddress("[::]:4711", {}, "127.0.0.2:7001") == "127.0.0.1:4711");
  // One that names a host is announced as it is, unless another name was asked for.
  REQUIRE(*AnnouncedAddress("127.0.0.3:9", {.interface = "lo"}, controller) == "127.0.0.3:9");
  REQUIRE(*AnnouncedAddress("127.0.0.3:9", {.advertise = "node-7"}, controller) == "node-7:9");
  REQUIRE(*AnnouncedAddress("unix:/w", {.advertise = "node-7"}, "unix:/c") == "unix:/w");
}

TEST_CASE("All interfaces are never announced: what is missing to choose one is said",
          "[cluster]") {
  const std::string bound = "0.0.0.0:4711";
  REQUIRE(Says(AnnouncedAddress(bound, {}, "unix:/run/c.sock").status(),
               "give --advertise or --interface"));
  REQUIRE(Says(AnnouncedAddress(bound, {.interface = "none7"}, "127.0.0.1:1").status(),
               "--interface none7: this host has no such interface"));
  REQUIRE(Says(AnnouncedAddress(bound, {}, "nowhere.invalid:1").status(),
               "the controller's address nowhere.invalid:1 is not known here"));
  REQUIRE(absl::IsInvalidArgument(AnnouncedAddress("4711", {}, "127.0.0.1:1").status()));
}

}  // namespace tandem
