// Ctrl-C: a clean stop, and the next start goes on.
#include <csignal>

#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"

namespace tandem::testing {
namespace {

void StopAt(ClusterRig& rig, const std::string& phase) {
  TestProcess& launcher = rig.Launch();
  rig.WaitForStatus("phase " + phase, [&](const auto& status) {
    return status.step() >= 1 && (phase.empty() || status.phase() == phase);
  });
  launcher.Signal(SIGINT);
  const int code = launcher.Wait();
  INFO(rig.Log("launcher"));
  REQUIRE(code == 130);
  REQUIRE(rig.LeftBehind() == "");
  REQUIRE(rig.Log("launcher").find("stopped after") != std::string::npos);
}

TEST_CASE("an interrupted run leaves nobody, exits with 130 and resumes") {
  ClusterRig rig({.config = {{"trainer.total_training_steps", "200"}}});
  rig.SetPairs(2);
  // Only the checkpoint of the end: the stop itself has to save one.
  rig.Set("trainer.save_freq", "-1");
  StopAt(rig, "");
  REQUIRE(rig.HasRunFile("checkpoints/latest"));
  const int64_t done = rig.Metrics().rbegin()->first;
  REQUIRE(done >= 1);

  rig.Set("trainer.total_training_steps", std::to_string(done + 1));
  const int code = rig.Launch().Wait();
  INFO(rig.Log("launcher"));
  REQUIRE(code == 0);
  REQUIRE(rig.Log("launcher").find("resuming after step") != std::string::npos);
  REQUIRE(rig.Metrics().rbegin()->first == done + 1);
  REQUIRE(rig.LeftBehind() == "");
}

TEST_CASE("a controller started by hand ends its workers on SIGINT") {
  ClusterRig rig({.config = {{"trainer.total_training_steps", "200"}}});
  TestProcess& controller = rig.StartController();
  TestProcess& trainer = rig.StartTrainer();
  TestProcess& rollout = rig.StartRollout();
  rig.WaitForStatus("the first step", [](const auto& status) { return status.step() >= 1; });
  controller.Signal(SIGINT);
  REQUIRE(controller.Wait() == 130);
  REQUIRE(trainer.Wait() == 0);
  REQUIRE(rollout.Wait() == 0);
  REQUIRE(rig.LeftBehind() == "");
}

TEST_CASE("a run stopped while it waits for workers ends at once") {
  ClusterRig rig;
  TestProcess& controller = rig.StartController();
  rig.WaitForStatus("the controller to listen", [](const auto&) { return true; });
  controller.Signal(SIGTERM);
  REQUIRE(controller.Wait(absl::Seconds(10)) == 0);
}

}  // namespace
}  // namespace tandem::testing
