// Ctrl-C: a clean stop, and the next start continues the run.
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

// Trainer 0 stands still between two of the buckets of step 1: the controller does not wait for it.
TEST_CASE("Ctrl-C in the middle of a sync aborts the sync, keeps the step and resumes") {
  const RigOptions options{.config = {{"cluster.heartbeat_timeout_seconds", "60"}}};
  ClusterRig rig(options);
  rig.SetPairs(2);
  // The model is one bucket; the first sync is that of the start.
  rig.SetFault("trainer", 0, "sync.bucket", 2, "stop");
  TestProcess& launcher = rig.Launch();
  rig.WaitForFault("the trainer's stop in its sync", launcher);
  pid_t trainer = 0;
  const auto status =
      rig.WaitForStatus("the sync", [](const auto& s) { return s.phase() == "sync"; });
  for (const auto& worker : status.workers()) {
    if (worker.worker().role() == v1::ROLE_TRAINER && worker.worker().rank() == 0) {
      trainer = static_cast<pid_t>(worker.pid());
    }
  }
  REQUIRE(trainer > 0);
  launcher.Signal(SIGINT);
  WaitUntil("the sync to be aborted", [&] {
    return rig.Log("launcher").find("the sync of weight version 1 was aborted") !=
           std::string::npos;
  });
  REQUIRE(kill(trainer, SIGCONT) == 0);
  const int code = launcher.Wait();
  {
    INFO(rig.Log("launcher") << rig.Log("controller") << rig.Log("trainer"));
    REQUIRE(code == 130);
    REQUIRE(rig.LeftBehind() == "");
    REQUIRE(rig.Metrics().size() == 1);
    REQUIRE_FALSE(rig.Weights(1).empty());
  }
  REQUIRE(rig.Log("launcher").find("the run resumes from its newest checkpoint") !=
          std::string::npos);
  const int resumed = rig.Launch().Wait();
  INFO(rig.Log("launcher") << rig.Log("controller"));
  REQUIRE(resumed == 0);
  const Outcome outcome = OutcomeOf(rig, 3);
  REQUIRE(outcome.metrics == Undisturbed().metrics);
  REQUIRE(outcome.weights == Undisturbed().weights);
}

TEST_CASE("a run stopped before its first checkpoint does not claim to have one") {
  ClusterRig rig({.config = {{"trainer.total_training_steps", "200"}}});
  TestProcess& launcher = rig.Launch({"--start-paused"});
  rig.WaitForStatus("the run to wait", [](const auto& s) { return s.state() == "paused"; });
  launcher.Signal(SIGINT);
  REQUIRE(launcher.Wait() == 130);
  const std::string said = rig.Log("launcher");
  INFO(said);
  REQUIRE(said.find("the run begins from the start: it has no checkpoint yet") !=
          std::string::npos);
  REQUIRE(said.find("resumes from its newest checkpoint") == std::string::npos);
}

TEST_CASE("a run stopped while it waits for workers ends at once") {
  ClusterRig rig;
  TestProcess& controller = rig.StartController();
  rig.WaitForStatus("the controller to listen", [](const auto&) { return true; });
  controller.Signal(SIGTERM);
  REQUIRE(controller.Wait() == 0);
}

}  // namespace
}  // namespace tandem::testing
