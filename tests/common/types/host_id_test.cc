#include "common/types/host_id.h"

#include <catch2/catch.hpp>

namespace tandem {

TEST_CASE("Two processes are on one host where boot id and node are equal and known", "[types]") {
  const HostId a{.boot_id = "1f2e3d4c-5b", .node = "a"};
  REQUIRE(SameHost(a, {.boot_id = "1f2e3d4c-5b", .node = "a"}));
  REQUIRE_FALSE(SameHost(a, {.boot_id = "1f2e3d4c-5b", .node = "b"}));  // a namespace of its kernel
  REQUIRE_FALSE(SameHost(a, {.boot_id = "5b", .node = "a"}));           // another machine so named
  REQUIRE_FALSE(SameHost({.node = "a"}, {.node = "a"}));
  REQUIRE(a.Key() == "1f2e3d4c-5b/a");
  REQUIRE(a.Text() == "a (boot 1f2e3d4c)");
  REQUIRE(HostId{.boot_id = "1f"}.Text() == "boot 1f");
}

TEST_CASE("A node's name has no characters that could be taken for others", "[types]") {
  for (const char* name : {"a", "gpu-07.cluster", "node_1"}) REQUIRE(IsNodeName(name));
  for (const std::string& name : {std::string(), std::string("a b"), std::string("a/b"),
                                  std::string("a\n"), std::string(254, 'a')}) {
    REQUIRE_FALSE(IsNodeName(name));
  }
}

}  // namespace tandem
