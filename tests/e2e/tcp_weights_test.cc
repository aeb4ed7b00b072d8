// Weights over TCP with real processes: forced on one host, and between hosts by themselves.
#include <map>
#include <string>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "tests/e2e/placed_run.h"
#include "tests/support/text.h"

namespace tandem::testing {
namespace {

const char* const kSent = "buckets, over TCP";
const char* const kListens = "weights over TCP: trainers connect to 127.0.0.1:";

RigOptions OverTcp() { return Tiny({{"weight_sync.transport", "tcp"}}); }

const PlacedRun& Shared() {
  static const PlacedRun run = RunColocated();
  return run;
}

// A run of two trainers and `rollouts` rollouts that the launcher starts, all over TCP.
void RequireSent(ClusterRig& rig, int rollouts) {
  const PlacedRun run = Finish(rig);
  RequireSame(run, Shared());
  REQUIRE(Has(run.said, fmt::format("tensors equal on each of {} rollouts", rollouts)));
  for (int trainer = 0; trainer < 2; ++trainer) {
    REQUIRE(Has(rig.Log("trainer", trainer), kSent));
    REQUIRE_FALSE(Has(rig.Log("trainer", trainer), "buckets, through slots"));
  }
  for (int rollout = 0; rollout < rollouts; ++rollout) {
    REQUIRE(Has(rig.Log("rollout", rollout), kListens));
  }
}

TEST_CASE("weights that go over TCP end with the bits of shared memory, colocated") {
  ClusterRig rig(OverTcp());
  rig.Set("rollout.free_cache_engine", "true");
  rig.SetPairs(2);
  RequireSent(rig, 2);
}

TEST_CASE("weights that go over TCP end with the bits of shared memory, apart") {
  ClusterRig rig(OverTcp());
  rig.SetApart(2, 3);
  RequireSent(rig, 3);
}

TEST_CASE("one trainer sends to the rollout of its host in place, and to another host over TCP") {
  ClusterRig alone(Tiny());
  const PlacedRun expected = Finish(alone);
  ClusterRig rig(Tiny());
  rig.SetApart(1, 2);
  rig.Set("rollout.nnodes", "2");
  rig.ListenOnPort();
  rig.UseNode("a");
  TestProcess& controller = rig.StartController();
  rig.StartTrainer();
  rig.StartRollout();
  rig.UseNode("b");
  rig.StartRollout(1);
  const int code = controller.Wait();
  const std::string sent = rig.Log("trainer");
  INFO(rig.Log("controller") << sent << rig.Log("rollout") << rig.Log("rollout", 1));
  REQUIRE(code == 0);
  REQUIRE(rig.LeftBehind() == "");
  RequireSame(ReadPlacedRun(rig), expected);
  REQUIRE(Has(sent, kSent));
  REQUIRE(Has(sent, "buckets, direct"));
  REQUIRE(Has(rig.Log("rollout", 1), kListens));
}

// What crossed connections in a step: out of the trainers, into the rollouts, and out of these.
struct Crossed {
  double sent, received, forwarded;
};
Crossed CrossedIn(const ClusterRig& rig, int64_t step) {
  const nlohmann::json metrics = rig.Metrics().at(step);
  return {metrics.at("perf/weights_sent_bytes"), metrics.at("perf/weights_received_bytes"),
          metrics.at("perf/weights_forwarded_bytes")};
}

TEST_CASE("a chain of three rollouts ends with the bits of a star and of shared memory") {
  ClusterRig alone(Tiny());
  const PlacedRun expected = Finish(alone);
  Crossed chained = {}, starred = {};
  {
    ClusterRig rig(OverTcp());
    rig.SetApart(1, 3);
    RequireSame(Finish(rig), expected);
    INFO(rig.Log("trainer"));
    REQUIRE(Has(rig.Log("trainer"), "went to the rollouts, of which 3 hold them"));
    chained = CrossedIn(rig, 1);
  }
  {
    ClusterRig rig(OverTcp());
    rig.SetApart(1, 3);
    rig.Set("weight_sync.fan_out", "star");
    RequireSame(Finish(rig), expected);
    REQUIRE_FALSE(Has(rig.Log("trainer"), "went to the rollouts"));
    starred = CrossedIn(rig, 1);
  }
  REQUIRE(chained.sent > 0);
  REQUIRE(starred.sent == 3 * chained.sent);
  REQUIRE(starred.received == starred.sent);
  REQUIRE(chained.received == starred.received);
  REQUIRE(starred.forwarded == 0);
  REQUIRE(chained.forwarded == 2 * chained.sent);
}

TEST_CASE("a rollout killed in the middle of a chain is blamed, replaced and sent them again") {
  ClusterRig rig(OverTcp());
  rig.SetApart(1, 3);
  rig.SetFault("rollout", 1, "apply bucket", 2);
  const int code = rig.Launch().Wait();
  const std::string said = rig.Log("launcher") + rig.Log("controller");
  INFO(said << rig.Log("trainer") << rig.Log("rollout", 2));
  REQUIRE(code == 0);
  REQUIRE(rig.FaultFired());
  REQUIRE(rig.LeftBehind() == "");
  REQUIRE(Has(said, "rollout 1 (reported by trainer 0)"));
  REQUIRE_FALSE(Has(said, "trainer 0 (lost"));
  ClusterRig alone(Tiny());
  REQUIRE(OutcomeOf(rig, kSteps).weights == Finish(alone).outcome.weights);
}

TEST_CASE(
    "a rollout killed while weights arrive over TCP is blamed, replaced and sent them again") {
  ClusterRig rig(OverTcp());
  rig.SetApart(2, 3);
  rig.SetFault("rollout", 2, "apply bucket", 2);
  const int code = rig.Launch().Wait();
  const std::string said = rig.Log("launcher") + rig.Log("controller");
  INFO(said);
  REQUIRE(code == 0);
  REQUIRE(rig.FaultFired());
  REQUIRE(rig.LeftBehind() == "");
  REQUIRE(Has(said, "rollout 2 (reported by trainer 0)"));
  REQUIRE_FALSE(Has(said, "trainer 0 (lost"));
  REQUIRE(OutcomeOf(rig, kSteps).weights == Shared().outcome.weights);
}

TEST_CASE("a trainer killed while it sends over TCP brings all trainers back to the checkpoint") {
  ClusterRig rig(OverTcp());
  rig.SetApart(2, 3);
  rig.SetFault("trainer", 1, "sync.bucket", 3);
  const int code = rig.Launch().Wait();
  INFO(rig.Log("launcher") << rig.Log("controller"));
  REQUIRE(code == 0);
  REQUIRE(rig.FaultFired());
  REQUIRE(rig.LeftBehind() == "");
  REQUIRE(OutcomeOf(rig, kSteps).weights == Shared().outcome.weights);
}

}  // namespace
}  // namespace tandem::testing
