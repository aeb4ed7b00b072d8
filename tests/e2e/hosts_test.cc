// Runs over several hosts, which are told apart by --node on one machine.
#include <csignal>
#include <deque>
#include <string>
#include <vector>

#include <absl/time/clock.h>
#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "common/tcp/certificate_folder.h"
#include "tests/e2e/placed_run.h"
#include "tests/support/build_folder.h"
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

// Two trainers on hosts with an address each, and three rollouts on the second, where every process
// has a certificate for its own role, rank and address alone.
struct HostsWithCertificates : ClusterRig {
  const std::string certificates = dir() / "certs";

  HostsWithCertificates() : ClusterRig(Tiny()) {
    SetApart(2, 3);
    Set("trainer.nnodes", "2");
    ListenOnPort();
    REQUIRE(MakeAuthorityFolder({.dir = certificates, .project = "demo"}, absl::Now()).ok());
    const CertificateFiles own = Issue({.roles = {"controller"}, .hosts = {"127.0.0.1"}});
    Set("cluster.tls.cert", own.cert);
    Set("cluster.tls.key", own.key);
    Set("cluster.tls.ca", own.ca);
  }

  CertificateFiles Issue(IssueOptions options) const {
    options.dir = certificates;
    return IssueCertificate(options, absl::Now()).value().files;
  }
  ProcessOptions WorkerAt(const std::string& host, const std::string& role, int rank) const {
    const CertificateFiles own = Issue({.roles = {role}, .rank = rank, .hosts = {host}});
    const std::string number = std::to_string(rank);
    return {.argv = {BuildFolder("bin") + "/tandem-" + role, "--controller", controller_address(),
                     "--rank", number, "--listen", host + ":0", "--node", host, "--tls-cert",
                     own.cert, "--tls-key", own.key, "--tls-ca", own.ca},
            .output = fmt::format("{}/logs/{}-{}.log", run_dir(), role, rank)};
  }
  std::string Logs() const {
    std::string logs = Log("controller") + Log("trainer") + Log("trainer", 1);
    for (int rank = 0; rank < 3; ++rank) logs += Log("rollout", rank);
    return logs;
  }
};

TEST_CASE("over TLS, with a certificate for each rank, two hosts end with the bits of one") {
  HostsWithCertificates rig;
  TestProcess& controller = rig.StartController();
  std::deque<TestProcess> workers;
  workers.emplace_back(rig.WorkerAt("127.0.0.2", "trainer", 0));
  workers.emplace_back(rig.WorkerAt("127.0.0.3", "trainer", 1));
  for (int rank = 0; rank < 3; ++rank) {
    workers.emplace_back(rig.WorkerAt("127.0.0.3", "rollout", rank));
  }
  const int code = controller.Wait();
  INFO(rig.Logs());
  REQUIRE(code == 0);
  for (TestProcess& worker : workers) REQUIRE(worker.Wait() == 0);
  RequireSame(ReadPlacedRun(rig), OnOneHost());
  REQUIRE(Has(rig.Log("trainer"), "trainers of other hosts connect to 127.0.0.2:"));
  REQUIRE(Has(rig.Log("trainer", 1), "trainers of other hosts connect to 127.0.0.3:"));
  for (int rank = 0; rank < 3; ++rank) {
    REQUIRE(Has(rig.Log("rollout", rank), "trainers connect to 127.0.0.3:"));
  }
  // Two rollouts have trainer 0, whatever their rank.
  REQUIRE(Has(rig.Log("trainer"), "buckets, over TCP"));
  REQUIRE_FALSE(Has(rig.Logs(), "in clear text"));
  REQUIRE_FALSE(Has(rig.Logs(), "needs the role"));
}

TEST_CASE("of several hosts the launcher starts the controller, and says which agents to start") {
  TwoHosts rig;
  TestProcess& launcher = rig.Launch();
  for (const int host : {0, 1}) {
    rig.UseNode(host == 0 ? "a" : "b");
    rig.StartAgent(host, 2);
  }
  const int code = launcher.Wait();
  const std::string said = rig.Log("launcher");
  INFO(said << rig.Logs());
  REQUIRE(code == 0);
  REQUIRE(Has(said, "2 agents shall start the workers"));
  REQUIRE(Has(said, "--host-index 1 --hosts 2"));
  RequireSame(ReadPlacedRun(rig), OnOneHost());
}

TEST_CASE("a launcher that other hosts do not reach says so before it starts anything") {
  ClusterRig rig(Tiny());
  rig.SetPairs(2);
  rig.Set("trainer.nnodes", "2");
  REQUIRE(rig.Launch().Wait() == 64);
  const std::string said = rig.Log("launcher");
  INFO(said);
  REQUIRE(Has(said,
              "on 2 hosts: agents on 2 hosts start the workers, and cluster.listen is a Unix "
              "socket, which other hosts do not reach"));
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
