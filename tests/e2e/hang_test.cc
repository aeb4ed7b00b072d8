// A worker that is alive and does nothing: the controller misses its heartbeats, the launcher kills
// it, and the run continues as after any other death.
#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"

namespace tandem::testing {
namespace {

void RequireRestart(const std::string& role, int rank, const std::string& point, int nth) {
  ClusterRig rig({.config = {{"cluster.heartbeat_timeout_seconds", "2"}}});
  rig.SetPairs(2);
  rig.SetFault(role, rank, point, nth, "stop");
  const int code = rig.Launch().Wait();
  const std::string said = rig.Log("launcher");
  INFO(said << rig.Log("controller"));
  REQUIRE(code == 0);
  REQUIRE(rig.FaultFired());
  REQUIRE(said.find(role + " " + std::to_string(rank) + " hangs; killed it") != std::string::npos);
  REQUIRE(said.find("restart 1 of 3") != std::string::npos);
  REQUIRE(rig.LeftBehind() == "");
  const Outcome outcome = OutcomeOf(rig, 3);
  REQUIRE(outcome.metrics == Undisturbed().metrics);
  REQUIRE(outcome.weights == Undisturbed().weights);
}

TEST_CASE("a rollout that hangs while it generates is killed and replaced") {
  RequireRestart("rollout", 1, "generate", 12);
}

TEST_CASE("a trainer that hangs while it trains is killed and replaced") {
  RequireRestart("trainer", 1, "train", 2);
}

}  // namespace
}  // namespace tandem::testing
