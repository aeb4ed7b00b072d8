// Runs over several hosts, which are told apart by --node on one machine.
#include <csignal>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/e2e/placed_run.h"
#include "tests/support/text.h"

namespace tandem::testing {
namespace {

// Two hosts, "a" with the controller and "b", that have a trainer and a rollout each.
struct TwoHosts : ClusterRig {
  explicit TwoHosts(Settings more = {}) : ClusterRig(Tiny(std::move(more))) {
    SetPairs(2);
    Set("trainer.nnodes", "2");
    Set("rollout.free_cache_engine", "true");
    ListenOnPort();
  }
  TestProcess& StartOnA(const std::string& what, int rank = 0) { return StartOn("a", what, rank); }
  TestProcess& StartOnB(const std::string& what, int rank = 1) { return StartOn("b", what, rank); }
  TestProcess& StartOn(const std::string& node, const std::string& what, int rank) {
    UseNode(node);
    if (what == "controller") return StartController();
    return what == "trainer" ? StartTrainer(rank) : StartRollout(rank);
  }
  // All logs, for the message of a test that fails.
  std::string Logs() const {
    std::string logs = Log("controller");
    for (int rank = 0; rank < 2; ++rank) logs += Log("trainer", rank) + Log("rollout", rank);
    return logs;
  }
};

const PlacedRun& OnOneHost() {
  static const PlacedRun run = RunColocated();
  return run;
}

TEST_CASE("a run on two hosts ends with the bits of one host, and shows who is where") {
  TwoHosts rig;
  TestProcess& controller = rig.StartOnA("controller");
  rig.StartOnA("trainer");
  rig.StartOnA("rollout");
  rig.StartOnB("trainer");
  rig.StartOnB("rollout");
  const int code = controller.Wait();
  INFO(rig.Logs());
  REQUIRE(code == 0);
  RequireSame(ReadPlacedRun(rig), OnOneHost());
  REQUIRE(Has(rig.Log("controller"), "on b (boot "));
  for (int rank = 0; rank < 2; ++rank) {
    REQUIRE(Has(rig.Log("trainer", rank), "trainers of other hosts connect to 127.0.0.1:"));
  }
}

TEST_CASE("a trainer killed on the second host is replaced there, and the bits stay") {
  TwoHosts rig(Settings{{"cluster.heartbeat_timeout_seconds", "5"}});
  rig.SetFault("trainer", 1, "train", 2);
  TestProcess& controller = rig.StartOnA("controller");
  rig.StartOnA("trainer");
  rig.StartOnA("rollout");
  TestProcess& victim = rig.StartOnB("trainer");
  rig.StartOnB("rollout");
  const int died = victim.Wait();
  INFO(rig.Logs());
  REQUIRE(died == -SIGKILL);
  // The controller sees no process of another host end: its silence frees the rank.
  rig.StartOnB("trainer");
  const int code = controller.Wait();
  INFO(rig.Logs());
  REQUIRE(code == 0);
  REQUIRE(rig.FaultFired());
  REQUIRE(OutcomeOf(rig, kSteps).weights == OnOneHost().outcome.weights);
  for (int64_t step = 1; step <= kSteps; ++step) {
    REQUIRE(rig.StoredRecords(step) == OnOneHost().samples[static_cast<size_t>(step) - 1]);
  }
  REQUIRE(rig.LeftBehind() == "");
}

TEST_CASE("workers on other hosts than the configuration says are refused, and say which") {
  TwoHosts rig;
  rig.Set("cluster.register_timeout_seconds", "600");
  TestProcess& controller = rig.StartOnA("controller");
  rig.StartOnA("trainer", 0);
  rig.WaitForStatus("the first trainer",
                    [](const auto& status) { return status.workers_size() == 1; });
  TestProcess& crowded = rig.StartOnA("trainer", 1);
  REQUIRE(crowded.Wait() == 64);
  INFO(rig.Logs());
  REQUIRE(Has(rig.Log("trainer", 1),
              "trainer 1 and trainer 0 are on one host, and with "
              "trainer.nnodes=2 for 2 trainers"));
  TestProcess& parted = rig.StartOnB("rollout", 0);
  REQUIRE(parted.Wait() == 64);
  REQUIRE(Has(rig.Log("rollout", 0), "must share one device"));
  rig.StartOnB("trainer", 1);
  rig.WaitForStatus("both trainers", [](const auto& status) { return status.workers_size() == 2; });
  const ClusterRig::CtlResult table = rig.Ctl({"status"});
  REQUIRE(Has(table.output, "node"));
  controller.Signal(SIGTERM);
  controller.Wait();
}

// Two trainers and a rollout with devices of their own, each on the host named for it.
struct HostsApart {
  int trainer_hosts;
  const char* trainers[2];
  const char* rollout;
};

PlacedRun RunOnHosts(const HostsApart& hosts) {
  ClusterRig rig(Tiny());
  rig.SetApart(2, 1);
  rig.Set("trainer.nnodes", std::to_string(hosts.trainer_hosts));
  rig.ListenOnPort();
  rig.UseNode(hosts.trainers[0]);
  TestProcess& controller = rig.StartController();
  for (int rank = 0; rank < 2; ++rank) {
    rig.UseNode(hosts.trainers[rank]);
    rig.StartTrainer(rank);
  }
  rig.UseNode(hosts.rollout);
  rig.StartRollout(0);
  const int code = controller.Wait();
  INFO(rig.Log("controller") << rig.Log("trainer") << rig.Log("trainer", 1) << rig.Log("rollout"));
  REQUIRE(code == 0);
  REQUIRE(rig.LeftBehind() == "");
  REQUIRE(Has(rig.Log("trainer"), "buckets, over TCP"));
  REQUIRE(Has(rig.Log("trainer"), "trainers of other hosts connect to") ==
          (hosts.trainer_hosts > 1));
  return ReadPlacedRun(rig);
}

TEST_CASE("rollouts on a host of their own, and every worker on one, end with the same bits") {
  RequireSame(RunOnHosts({1, {"a", "a"}, "b"}), OnOneHost());
  RequireSame(RunOnHosts({2, {"a", "b"}, "c"}), OnOneHost());
}

TEST_CASE("the launcher starts one host, and says so before it starts anything") {
  TwoHosts rig;
  TestProcess& launcher = rig.Launch();
  REQUIRE(launcher.Wait() == 64);
  const std::string said = rig.Log("launcher");
  INFO(said);
  REQUIRE(Has(said,
              "2 trainers and 2 rollouts that share in pairs 2 devices, on 2 hosts: the "
              "launcher starts one host"));
  REQUIRE_FALSE(rig.HasRunFile("logs/controller-0.log"));
}

TEST_CASE("a dry run and a plan say which workers are on which host") {
  TwoHosts rig;
  REQUIRE(rig.Launch({"--dry-run"}).Wait() == 0);
  const std::string said = rig.Log("launcher");
  INFO(said);
  REQUIRE(Has(said, "host 2: trainer 1, rollout 1"));
}

}  // namespace
}  // namespace tandem::testing
