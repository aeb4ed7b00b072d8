// Placement with real processes: what a run ends with depends on the number of its trainers alone.
#include <catch2/catch.hpp>

#include "tests/e2e/placed_run.h"
#include "tests/support/text.h"

namespace tandem::testing {
namespace {

PlacedRun RunApart(int trainers, int rollouts, const Settings& settings = {}) {
  ClusterRig rig(Tiny(settings));
  rig.SetApart(trainers, rollouts);
  return Finish(rig);
}

TEST_CASE("colocated, apart with fewer rollouts and apart with more end with the same bits") {
  const PlacedRun colocated = RunColocated();
  const PlacedRun fewer = RunApart(2, 1);
  const PlacedRun more = RunApart(2, 3);
  RequireSame(fewer, colocated);
  RequireSame(more, colocated);
  // Every rollout was probed and verified, whoever publishes to it.
  for (size_t step = 0; step < kSteps; ++step) {
    REQUIRE(fewer.probe_tokens[step] * 2 == colocated.probe_tokens[step]);
    REQUIRE(more.probe_tokens[step] * 2 == colocated.probe_tokens[step] * 3);
  }
  REQUIRE(Has(colocated.said, "tensors equal on each of 2 rollouts"));
  REQUIRE(Has(fewer.said, "tensors equal on each of 1 rollouts"));
  REQUIRE(Has(more.said, "tensors equal on each of 3 rollouts"));
}

TEST_CASE("adapters reach every rollout apart, merged or not") {
  for (const char* merge : {"true", "false"}) {
    INFO("model.lora.merge=" << merge);
    const Settings lora = {{"model.lora.rank", "4"},
                           {"model.lora.alpha", "8"},
                           {"model.lora.merge", merge},
                           {"actor.optim.lr", "0.01"}};
    RequireSame(RunApart(2, 3, lora), RunColocated(lora));
  }
}

TEST_CASE("one trainer, whose rows are read directly, publishes to several rollouts") {
  ClusterRig alone(Tiny());
  RequireSame(RunApart(1, 2), Finish(alone));
}

// Kills a worker of a run with two trainers and three rollouts.
std::string RecoverApart(const Fault& fault) {
  static const PlacedRun undisturbed = RunColocated();
  ClusterRig rig(Tiny());
  rig.SetApart(2, 3);
  rig.SetFault(fault.role, fault.rank, fault.point, fault.nth);
  const int code = rig.Launch().Wait();
  std::string said = rig.Log("launcher") + rig.Log("controller");
  INFO(said);
  REQUIRE(code == 0);
  REQUIRE(rig.FaultFired());
  REQUIRE(rig.LeftBehind() == "");
  REQUIRE(OutcomeOf(rig, kSteps).weights == undisturbed.outcome.weights);
  for (int64_t step = 1; step <= kSteps; ++step) {
    REQUIRE(rig.StoredRecords(step) == undisturbed.samples[static_cast<size_t>(step) - 1]);
  }
  return said;
}

TEST_CASE("a rollout killed while it generates apart is replaced, and synced alone") {
  const std::string said = RecoverApart({"rollout", 2, "generate", 6});
  INFO(said);
  REQUIRE(Has(said, "rollout 2 holds weight version"));
  REQUIRE(Has(said, "tensors equal on each of 1 rollouts"));
  REQUIRE_FALSE(Has(said, "rollout 0 holds weight version"));
}

TEST_CASE("a rollout killed while weights arrive apart is blamed by its own rank") {
  const std::string said = RecoverApart({"rollout", 2, "apply bucket", 2});
  INFO(said);
  REQUIRE(Has(said, "rollout 2 (reported by trainer 0)"));
  REQUIRE_FALSE(Has(said, "trainer 0 (lost"));
}

TEST_CASE("a trainer killed as it trains apart brings all trainers back to the checkpoint") {
  RecoverApart({"trainer", 1, "train", 2});
}

TEST_CASE("rollouts with devices of their own generate while the trainers train") {
  ClusterRig rig(Tiny({{"rollout.partial.overlap", "true"},
                       {"rollout.partial.max_tokens_per_round", "6"},
                       {"rollout.partial.groups_per_round", "6"}}));
  rig.SetApart(2, 3);
  const int code = rig.Launch().Wait();
  INFO(rig.Log("launcher") << rig.Log("controller"));
  REQUIRE(code == 0);
  REQUIRE(rig.LeftBehind() == "");
  REQUIRE(rig.Metrics().size() == kSteps);
  REQUIRE_FALSE(rig.Weights(kSteps).empty());
  int compared = 0;
  for (const auto& [step, metrics] : rig.Metrics()) {
    const char* identical = "training/rollout_log_probs_identical";
    if (!metrics.contains(identical)) continue;
    ++compared;
    REQUIRE(metrics.at(identical) == 1.0);
  }
  REQUIRE(compared > 0);
}

TEST_CASE("a run goes on with other rollouts, and ends with the same bits") {
  ClusterRig rig(Tiny());
  rig.SetPairs(2);
  rig.Set("trainer.total_training_steps", "2");
  REQUIRE(rig.Launch().Wait() == 0);
  rig.Set("trainer.total_training_steps", std::to_string(kSteps));
  rig.SetApart(2, 3);
  const int code = rig.Launch().Wait();
  const std::string said = rig.Log("launcher") + rig.Log("controller");
  INFO(said);
  REQUIRE(code == 0);
  REQUIRE_FALSE(Has(said, "cluster.rollouts:"));
  REQUIRE_FALSE(Has(said, "cluster.hybrid_engine:"));
  REQUIRE(rig.Weights(kSteps) == RunColocated().outcome.weights);
}

TEST_CASE("a dry run tells workers and devices apart") {
  ClusterRig rig(Tiny());
  rig.SetApart(2, 3);
  TestProcess& launcher = rig.Launch({"--dry-run"});
  REQUIRE(launcher.Wait() == 0);
  const std::string said = rig.Log("launcher");
  INFO(said);
  REQUIRE(Has(said, "2 trainers and 3 rollouts on 5 devices"));
  REQUIRE(Has(said, "memory plan of a device: peak "));
}

}  // namespace
}  // namespace tandem::testing
