// A rollout whose weights change by themselves, or that computes wrongly: the run ends in that
// step.
#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"
#include "tests/support/text.h"

namespace tandem::testing {
namespace {

// Rollouts return no log-probs, so those of the batch are not compared.
RigOptions WithoutComparison() {
  return {
      .config = {{"rollout.calculate_log_probs", "false"}, {"actor.old_log_prob", "recompute"}}};
}

TEST_CASE("P7: one changed element of the weights stops the run in the next step, by name") {
  ClusterRig rig;
  rig.SetPairs(2);
  // The second update of a run is that of its first step.
  rig.SetFault("rollout", 1, "resident weights", 2, "flip");
  const int code = rig.Launch().Wait();
  const std::string said = rig.Log("launcher") + rig.Log("controller");
  INFO(said);
  REQUIRE(rig.FaultFired());
  REQUIRE(code == 70);
  REQUIRE(Has(said, "rollout 1: "));
  REQUIRE(Has(said, ".weight of version 1 changed in this rollout's memory: digest "));
  REQUIRE_FALSE(Has(said, "rollout 0: "));
  REQUIRE(rig.LeftBehind() == "");
  // Nothing came of the second step, and the first is saved.
  REQUIRE(rig.Metrics().size() == 1);
  REQUIRE_FALSE(rig.Weights(1).empty());
}

TEST_CASE("P7: a rollout that computes wrongly is stopped by the probe, where nothing else looks") {
  ClusterRig rig(WithoutComparison());
  rig.SetPairs(2);
  rig.SetFault("rollout", 1, "hidden state", 1, "flip");
  const int code = rig.Launch().Wait();
  const std::string said = rig.Log("launcher") + rig.Log("controller");
  INFO(said);
  REQUIRE(rig.FaultFired());
  REQUIRE(code == 70);
  REQUIRE(Has(said, "the probe of step 1 differs: rollout 1 says log-prob -"));
  REQUIRE(Has(said, ", trainer 1 says -"));
  REQUIRE(rig.LeftBehind() == "");
  REQUIRE(rig.Metrics().empty());
}

TEST_CASE("P7: without the probe such a run goes on, with it a sound one compares every token") {
  ClusterRig blind(WithoutComparison());
  blind.Set("weight_sync.probe", "false");
  blind.SetFault("rollout", 0, "hidden state", 1, "flip");
  REQUIRE(blind.Launch().Wait() == 0);
  REQUIRE(blind.FaultFired());
  REQUIRE(blind.Metrics().size() == 3);
  REQUIRE_FALSE(blind.Metrics().at(3).contains("weights/probe_tokens"));

  ClusterRig sound(WithoutComparison());
  sound.SetPairs(2);
  const int code = sound.Launch().Wait();
  INFO(sound.Log("launcher") << sound.Log("controller"));
  REQUIRE(code == 0);
  for (const auto& [step, metrics] : sound.Metrics()) {
    // Three prompts, four tokens each, on two pairs.
    REQUIRE(metrics.at("weights/probe_tokens") == 24);
  }
  REQUIRE(Has(sound.Log("controller"), "probe: 24 of 24 token log-probs identical"));
}

TEST_CASE("P7: the probe changes nothing that is trained") {
  Outcome outcomes[2];
  for (const bool probe : {false, true}) {
    ClusterRig rig({.config = {{"weight_sync.probe", probe ? "true" : "false"}}});
    rig.SetPairs(2);
    REQUIRE(rig.Launch().Wait() == 0);
    outcomes[probe] = OutcomeOf(rig, 3);
  }
  REQUIRE_FALSE(outcomes[0].weights.empty());
  REQUIRE(outcomes[0].weights == outcomes[1].weights);
  REQUIRE(outcomes[0].metrics == outcomes[1].metrics);
}

}  // namespace
}  // namespace tandem::testing
