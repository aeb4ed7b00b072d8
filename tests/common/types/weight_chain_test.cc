#include "common/types/weight_chain.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("rollouts of a host are neighbours in a chain, hosts in the order of their first") {
  const auto share_host = [](int one, int other) { return one % 3 == other % 3; };
  REQUIRE(ChainOrder({1, 2, 3, 4, 6, 7}, share_host) == std::vector<int>{1, 4, 7, 2, 3, 6});
  REQUIRE(ChainOrder({}, share_host).empty());
}

TEST_CASE("a chain has three rollouts or more, two where it was asked for, or there is none") {
  REQUIRE(ShortestChain("auto") == 3);
  REQUIRE(ShortestChain("chain") == 2);
  REQUIRE(ShortestChain("star") == 0);
}

}  // namespace
}  // namespace tandem
