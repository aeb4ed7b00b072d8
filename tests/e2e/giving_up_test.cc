// A run that cannot continue ends by itself, says why, and leaves no process.
#include <csignal>

#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"
#include "tests/support/text.h"

namespace tandem::testing {
namespace {

TEST_CASE("restarts that are used up end the run") {
  ClusterRig rig({.config = {{"cluster.max_restarts", "0"}}});
  rig.SetFault("trainer", 0, "train", 2);
  const int code = rig.Launch({"--grace", "5"}).Wait();
  const std::string said = rig.Log("launcher");
  INFO(said);
  REQUIRE(code == 70);
  REQUIRE(Has(said, "trainer 0 died: signal 9"));
  REQUIRE(Has(said, "are used (cluster.max_restarts = 0)"));
  REQUIRE(rig.LeftBehind() == "");
  REQUIRE_FALSE(rig.Weights(1).empty());
}

TEST_CASE("a worker that hangs is named, and ends a run without restarts") {
  ClusterRig rig(
      {.config = {{"cluster.heartbeat_timeout_seconds", "5"}, {"cluster.max_restarts", "0"}}});
  rig.SetPairs(2);
  rig.SetFault("trainer", 1, "train", 2, "stop");
  const int code = rig.Launch({"--grace", "2"}).Wait();
  const std::string said = rig.Log("launcher") + rig.Log("controller");
  INFO(said);
  REQUIRE(code == 70);
  REQUIRE(Has(said, "No heartbeat from trainer 1 for"));
  REQUIRE(Has(said, "cluster.max_restarts"));
  REQUIRE(rig.LeftBehind() == "");
}

TEST_CASE("a worker that wakes from a short stop does not end the run") {
  ClusterRig rig({.config = {{"cluster.heartbeat_timeout_seconds", "5"}}});
  rig.SetFault("rollout", 0, "generate", 10, "stop");
  TestProcess& launcher = rig.Launch();
  pid_t stopped = 0;
  WaitUntil("the controller to miss the rollout", [&] {
    const auto status = rig.Status();
    if (!status) return false;
    for (const auto& worker : status->workers()) {
      if (worker.state() != "lost") continue;
      stopped = static_cast<pid_t>(worker.pid());
    }
    return stopped != 0;
  });
  REQUIRE(kill(stopped, SIGCONT) == 0);
  const int code = launcher.Wait();
  INFO(rig.Log("launcher") << rig.Log("controller"));
  REQUIRE(code == 0);
  REQUIRE(rig.LeftBehind() == "");
}

TEST_CASE("a worker that never registers is named") {
  ClusterRig rig({.config = {{"cluster.register_timeout_seconds", "2"}}});
  TestProcess& controller = rig.StartController();
  TestProcess& rollout = rig.StartRollout();
  const int code = controller.Wait();
  INFO(rig.Log("controller"));
  REQUIRE(code == 69);
  REQUIRE(Has(rig.Log("controller"), "trainer 0 (never registered)"));
  REQUIRE(Has(rig.Log("controller"), "cluster.register_timeout_seconds"));
  REQUIRE(rollout.Wait() == 0);
  REQUIRE(rig.LeftBehind() == "");
}

TEST_CASE("workers give up on a controller that stays away") {
  ClusterRig rig({.config = {{"cluster.controller_lost_seconds", "1"}}});
  TestProcess& controller = rig.StartController({"--start-paused"});
  TestProcess& trainer = rig.StartTrainer();
  TestProcess& rollout = rig.StartRollout();
  rig.WaitForStatus("the run to wait", [](const auto& s) { return s.state() == "paused"; });
  controller.Signal(SIGKILL);
  REQUIRE(trainer.Wait() == 69);
  REQUIRE(rollout.Wait() == 69);
  REQUIRE(Has(rig.Log("trainer"), "has not answered for"));
  REQUIRE(rig.LeftBehind() == "");
}

}  // namespace
}  // namespace tandem::testing
