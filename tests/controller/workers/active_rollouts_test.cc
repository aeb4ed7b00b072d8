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
  REQUIRE(rollouts.TimesLeftOut(0) == 1);
  REQUIRE(rollouts.TimesLeftOut(1) == 0);
  REQUIRE(rollouts.TimesLeftOut(2) == 2);
}

TEST_CASE("ActiveRollouts waits for one that is on its way where too few would be left", "[pool]") {
  using Ranks = std::vector<int>;
  ActiveRollouts rollouts(2);
  rollouts.Expect(1);  // takes part
  rollouts.LeaveOut(0);
  rollouts.Expect(0);
  REQUIRE(rollouts.Ranks() == Ranks{1});
  rollouts.LeaveOut(1);
  REQUIRE(rollouts.Ranks() == Ranks{0});
  // One that was lost again is on its way no more.
  ActiveRollouts three(3, 2);
  three.LeaveOut(0);
  three.Expect(0);
  three.LeaveOut(0);
  three.LeaveOut(1);
  REQUIRE(three.Ranks() == Ranks{2});
}

}  // namespace tandem
