#include "controller/workers/agents/active_rollouts.h"

#include <vector>

#include <catch2/catch.hpp>

namespace tandem {

TEST_CASE("ActiveRollouts leaves ranks out, and takes in those that are ready", "[pool]") {
  using Ranks = std::vector<int>;
  ActiveRollouts rollouts(3);
  REQUIRE(rollouts.Ranks() == Ranks{0, 1, 2});
  rollouts.LeaveOut(0);
  rollouts.LeaveOut(2);
  rollouts.LeaveOut(2);
  REQUIRE(rollouts.Ranks() == Ranks{1});
  REQUIRE_FALSE(rollouts.Contains(0));
  REQUIRE(rollouts.Contains(1));
  REQUIRE_FALSE(rollouts.Contains(3));
  REQUIRE(rollouts.TakeIn([](int rank) { return rank == 2; }) == Ranks{2});
  REQUIRE(rollouts.Ranks() == Ranks{1, 2});
  REQUIRE(rollouts.TakeIn([](int) { return false; }).empty());
  REQUIRE(rollouts.Ranks() == Ranks{1, 2});
}

}  // namespace tandem
