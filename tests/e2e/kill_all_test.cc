// All processes are killed at once, at any moment: the next start continues to the same end.
#include <csignal>
#include <random>

#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"

namespace tandem::testing {
namespace {

// The children of a launcher that is killed get SIGKILL from the system. They may still be leaving
// when the next start takes their place.
void KillAll(TestProcess& launcher) {
  launcher.Signal(SIGKILL);
  const int code = launcher.Wait();
  REQUIRE((code == -SIGKILL || code == 0));  // 0: it was done already
}

void RequireUndisturbedOutcome(ClusterRig& rig) {
  const int code = rig.Launch().Wait();
  INFO(rig.Log("launcher"));
  REQUIRE(code == 0);
  REQUIRE(rig.LeftBehind() == "");
  const Outcome outcome = OutcomeOf(rig, 3);
  REQUIRE(outcome.metrics == Undisturbed().metrics);
  REQUIRE(outcome.weights == Undisturbed().weights);
}

TEST_CASE("a run killed at random moments resumes to the same weights") {
  const Outcome& expected = Undisturbed();
  REQUIRE_FALSE(expected.weights.empty());
  std::mt19937 random(20240501);
  for (int round = 0; round < 2; ++round) {
    ClusterRig rig;
    rig.SetPairs(2);
    TestProcess& launcher = rig.Launch();
    // The moment: so many answers of the API after the start of a random step.
    const int64_t step = std::uniform_int_distribution<int64_t>(0, 2)(random);
    int answers = std::uniform_int_distribution<int>(0, 12)(random);
    INFO("step " << step << ", " << answers << " answers later");
    WaitUntil("the moment of death", [&] {
      const auto status = rig.Status();
      return !launcher.running() || (status && status->step() >= step && answers-- <= 0);
    });
    KillAll(launcher);
    RequireUndisturbedOutcome(rig);
  }
}

TEST_CASE("a run killed before its first checkpoint starts again") {
  ClusterRig rig;
  rig.SetPairs(2);
  TestProcess& launcher = rig.Launch();
  rig.WaitForStatus("the first step", [](const auto& status) { return status.phase() != ""; });
  KillAll(launcher);
  RequireUndisturbedOutcome(rig);
}

TEST_CASE("a checkpoint of two ranks resumes on one and on three") {
  ClusterRig rig;
  rig.SetPairs(2);
  rig.Set("trainer.total_training_steps", "1");
  REQUIRE(rig.Launch().Wait() == 0);
  const std::string first = rig.run_dir() + "/checkpoints/step_1";
  for (const int pairs : {1, 3}) {
    INFO(pairs << " pairs");
    rig.SetPairs(pairs);
    rig.UseRunDir("pairs-" + std::to_string(pairs));
    rig.Set("trainer.total_training_steps", "2");
    rig.Set("trainer.resume_mode", "resume_path");
    rig.Set("trainer.resume_from_path", first);
    const int code = rig.Launch().Wait();
    INFO(rig.Log("launcher"));
    REQUIRE(code == 0);
    REQUIRE(rig.Metrics().size() == 1);
    REQUIRE(rig.Metrics().begin()->first == 2);
    REQUIRE_FALSE(rig.Weights(2).empty());
    REQUIRE(rig.LeftBehind() == "");
  }
}

}  // namespace
}  // namespace tandem::testing
