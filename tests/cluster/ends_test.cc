// How a job of Slurm's ends before its run does, and goes on: the same bits as undisturbed.
#include <stdexcept>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "common/process/exit_code.h"
#include "tests/cluster/slurm_cluster.h"
#include "tests/e2e/placed_run.h"
#include "tests/support/build_folder.h"
#include "tests/support/patience.h"
#include "tests/support/text.h"

namespace tandem::testing {
namespace {

// Two trainers and rollouts that share devices, on two nodes.
struct TwoNodes : ClusterRig {
  TwoNodes() : ClusterRig(Tiny({{"rollout.free_cache_engine", "true"}})) {
    SetPairs(2);
    Set("trainer.nnodes", "2");
  }
  std::string Logs() const {
    return Log("launcher") + Log("controller") + Log("trainer") + Log("trainer", 1);
  }
  // tandemctl on the head. Returns whether it ended with 0.
  bool CtlOnHead(const std::vector<std::string>& arguments) {
    const std::string certs = run_dir() + "/slurm-certs";
    std::vector<std::string> command = {BuildFolder("bin") + "/tandemctl",
                                        "--run-dir",
                                        run_dir(),
                                        "--tls-cert",
                                        certs + "/operator.pem",
                                        "--tls-key",
                                        certs + "/operator.key",
                                        "--tls-ca",
                                        certs + "/ca.pem"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    try {
      cluster.Run(command);
    } catch (const std::runtime_error& failed) {
      ctl_said = failed.what();
      return false;
    }
    return true;
  }
  void WaitForSecondStep(const std::string& job) const {
    WaitForFault("the second step", [&] { return cluster.StateOf(job).ended(); });
  }
  bool HasCheckpoint() const { return HasRunFile("checkpoints/latest"); }

  SlurmCluster& cluster = SlurmCluster::Shared();
  std::string ctl_said;
};

void RequireBitsOfOneHost(const TwoNodes& rig) {
  REQUIRE(OutcomeOf(rig, kSteps).weights == OnOneHost().outcome.weights);
  for (int64_t step = 1; step <= kSteps; ++step) {
    REQUIRE(rig.StoredRecords(step) == OnOneHost().samples[static_cast<size_t>(step) - 1]);
  }
}

TEST_CASE("a job that is cancelled leaves nothing behind") {
  TwoNodes rig;
  rig.Set("trainer.total_training_steps", "50000");
  const std::string job = rig.cluster.Submit(rig, 2);
  WaitUntil("the first checkpoint", [&] { return rig.HasCheckpoint(); });
  rig.cluster.Run({"scancel", job});
  const JobState ended = rig.cluster.WaitForEnd(job);
  const std::string left = rig.LeftBehind();
  INFO(rig.Logs());
  REQUIRE(ended.name == "CANCELLED");
  REQUIRE(left == "");
  REQUIRE(ended.restarts == 0);
}

TEST_CASE("before the time limit a run saves, and goes on in the job's next life") {
  TwoNodes rig;
  // Paused, it makes one step in the first life, however fast it is.
  const std::string job = rig.cluster.Submit(rig, 2, {"--start-paused"});
  WaitUntil("a first step", [&] { return rig.CtlOnHead({"step"}); });
  // What --signal=B:USR1@180 sends 180 s before the end, which a job has a minute to reach at
  // least.
  rig.cluster.Run({"scancel", "--signal=USR1", "--batch", job});
  WaitUntil("the second life", [&] { return rig.cluster.StateOf(job).restarts == 1; });
  WaitUntil("the other steps", [&] { return rig.CtlOnHead({"run", "2"}); });
  WaitUntil("its stop", [&] { return rig.CtlOnHead({"stop"}); });
  const JobState ended = rig.cluster.WaitForEnd(job);
  INFO(rig.Logs() << rig.ctl_said);
  REQUIRE(ended.name == "COMPLETED");
  REQUIRE(Has(rig.Log("launcher"), "begins anew, from checkpoint step_1"));
  REQUIRE(rig.LeftBehind() == "");
  RequireBitsOfOneHost(rig);
}

TEST_CASE("a node that crashes is replaced by another, and the bits stay") {
  TwoNodes rig;
  // Trainer 1 stands still in the second step, so that its node crashes then.
  rig.SetFault("trainer", 1, "train", 2, "stop");
  const std::string job = rig.cluster.Submit(rig, 2);
  rig.WaitForSecondStep(job);
  rig.cluster.Do("crash", "node2");
  const JobState ended = rig.cluster.WaitForEnd(job);
  INFO(rig.Logs());
  REQUIRE(ended.name == "COMPLETED");
  REQUIRE(ended.restarts == 1);
  REQUIRE(ended.nodes == "node[1,3]");
  REQUIRE(rig.LeftBehind() == "");
  RequireBitsOfOneHost(rig);
  rig.cluster.Do("boot", "node2");
  rig.cluster.WaitForNode("node2");
}

// A job that goes on without a node, and its third node spare.
struct ElasticJob : TwoNodes {
  ElasticJob() {
    Set("cluster.elastic", "true");
    Set("cluster.spare_hosts", "1");
    Set("cluster.heartbeat_timeout_seconds", "3");
    Set("cluster.controller_lost_seconds", "10");
    Set("cluster.watchdog_seconds", "9");
  }
  std::string SubmitOnThree() { return cluster.Submit(*this, 3, {}, {"--no-kill"}); }
};

TEST_CASE("a job goes on without a node that crashes, on its spare one, and the bits stay") {
  ElasticJob rig;
  rig.SetFault("trainer", 1, "train", 2, "stop");
  const std::string job = rig.SubmitOnThree();
  rig.WaitForSecondStep(job);
  rig.cluster.Do("crash", "node2");
  const JobState ended = rig.cluster.WaitForEnd(job);
  INFO(rig.Logs());
  REQUIRE(ended.name == "COMPLETED");
  REQUIRE(ended.restarts == 0);
  REQUIRE(Has(rig.Log("controller"), "host 1 on node2 (boot "));
  REQUIRE(Has(rig.Log("controller"), ") runs trainer 1 and rollout 1"));
  REQUIRE(rig.LeftBehind() == "");
  RequireBitsOfOneHost(rig);
  rig.cluster.Do("boot", "node2");
  rig.cluster.WaitForNode("node2");
}

TEST_CASE("a run directory that the nodes do not share is said at the start") {
  TwoNodes rig;
  rig.Set("cluster.run_dir", rig.cluster.local_disk() + "/run");
  const std::vector<std::string> over = {"cluster.run_dir=" + rig.cluster.local_disk() + "/run"};
  const JobState ended = rig.cluster.WaitForEnd(rig.cluster.Submit(rig, 2, over));
  const std::string said = rig.Log("launcher");
  INFO(said);
  REQUIRE(ended.name == "FAILED");
  REQUIRE(ended.code == kExitRefused);
  REQUIRE(Has(said, " does not see " + rig.cluster.local_disk() + "/run/shared-"));
  REQUIRE(rig.LeftBehind() == "");
}

}  // namespace
}  // namespace tandem::testing
