// A rollout dies: its groups are issued again, it is restarted and synced, nothing else changes.
#include <csignal>

#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"

namespace tandem::testing {
namespace {

TEST_CASE("a rollout killed while it generates") {
  RequireRecovery({"rollout", 1, "generate", 12});
}

// The process of a rollout, as the controller knows it.
pid_t PidOf(const v1::GetStatusResponse& status, int rank) {
  for (const auto& worker : status.workers()) {
    if (worker.worker().role() == v1::ROLE_ROLLOUT && worker.worker().rank() == rank) {
      return static_cast<pid_t>(worker.pid());
    }
  }
  return 0;
}

// Rollout 0 stands still in the middle of a group, so whatever rollout 1 gets meanwhile, it does
// not get because the other has finished.
TEST_CASE("F3: a rollout that restarts is synced and generates while another is in its prompts") {
  const RigOptions options{.config = {{"rollout.max_num_seqs", "2"},
                                      {"rollout.ignore_eos", "true"},
                                      {"cluster.heartbeat_timeout_seconds", "60"}}};
  ClusterRig rig(options);
  rig.SetPairs(2);
  rig.SetFault("rollout", 1, "generate", 3);
  rig.AddFault("rollout", 0, "generate", 3, "stop");
  TestProcess& launcher = rig.Launch();
  WaitUntil("rollout 1 to come back", [&] {
    return rig.Log("controller").find("rollout 1 holds weight version 0 again") !=
           std::string::npos;
  });
  const auto status = rig.WaitForStatus("rollout 1 to generate again", [](const auto& s) {
    for (const auto& worker : s.workers()) {
      if (worker.worker().role() != v1::ROLE_ROLLOUT || worker.worker().rank() != 1) continue;
      return worker.worker().incarnation() > 1 && worker.last_action() == "generate";
    }
    return false;
  });
  REQUIRE(rig.FaultFired());
  REQUIRE(status.phase() == "generate");
  REQUIRE(kill(PidOf(status, 0), SIGCONT) == 0);
  const int code = launcher.Wait();
  const std::string second_life = rig.Log("rollout", 1);
  INFO(rig.Log("launcher") << rig.Log("controller") << second_life);
  REQUIRE(code == 0);
  REQUIRE(rig.LeftBehind() == "");
  const Outcome expected = RunUndisturbed(options), outcome = OutcomeOf(rig, 3);
  REQUIRE(outcome.metrics == expected.metrics);
  REQUIRE(outcome.weights == expected.weights);
}

TEST_CASE("a rollout killed while it sleeps") {
  const std::string said =
      RequireRecovery({"rollout", 0, "asleep", 2}, {{"rollout.free_cache_engine", "true"}});
  INFO(said);
  // The trainers keep the step: only the rollout that was lost is synced, and checked.
  REQUIRE(said.find("recovered: continuing from step") == std::string::npos);
}

TEST_CASE("a rollout killed while weights arrive") {
  const std::string said = RequireRecovery({"rollout", 1, "apply bucket", 2});
  INFO(said);
  REQUIRE(said.find("rollout 1 (reported by trainer 1)") != std::string::npos);
  // Where it is back before anybody waits, it has never been seen lost.
  REQUIRE(said.find("rollout 1 registered: incarnation 2") != std::string::npos);
  REQUIRE(said.find("trainer 1 (lost") == std::string::npos);
}

TEST_CASE("a rollout killed before it commits an update") {
  RequireRecovery({"rollout", 0, "commit update", 3});
}

TEST_CASE("a rollout killed as it wakes") {
  RequireRecovery({"rollout", 1, "wake", 4}, {{"rollout.free_cache_engine", "true"}});
}

}  // namespace
}  // namespace tandem::testing
