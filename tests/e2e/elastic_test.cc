// Runs of several hosts that lose one and go on, with the bits of a run that lost none. Hosts are
// told apart by --node on one machine.
#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "tests/e2e/placed_run.h"
#include "tests/support/text.h"

namespace tandem::testing {
namespace {

constexpr const char* kNodes[] = {"a", "b", "c", "d", "e"};

// The controller is on node "a", and agents on as many nodes as a test starts.
struct ElasticRun : ClusterRig {
  ElasticRun(int agents, Settings more)
      : ClusterRig(Tiny([&more] {
          more.insert({{"cluster.elastic", "true"}, {"cluster.heartbeat_timeout_seconds", "3"}});
          return more;
        }())),
        agents_(agents) {}
  TestProcess& StartAgentOf(int host) {
    UseNode(kNodes[host]);
    TestProcess& agent = StartAgent(host, agents_);
    UseNode("a");
    return agent;
  }
  // Controller and all agents. Those that are to be lost are in `agents`.
  TestProcess& StartAll(std::vector<TestProcess*>* agents) {
    ListenOnPort();
    UseNode("a");
    TestProcess& controller = StartController();
    for (int host = 0; host < agents_; ++host) agents->push_back(&StartAgentOf(host));
    return controller;
  }
  std::string Logs() const {
    std::string logs = Log("controller");
    for (int index = 0; index < agents_; ++index) {
      logs += Log("agent", index) + Log("trainer", index) + Log("rollout", index);
    }
    return logs;
  }
  // The run ended well, and with everything that one on one host ends with.
  void RequireOutcome(TestProcess& controller) {
    const int code = controller.Wait();
    INFO(Logs());
    REQUIRE(code == 0);
    REQUIRE(LeftBehind() == "");
    REQUIRE(OutcomeOf(*this, kSteps).weights == OnOneHost().outcome.weights);
    for (int64_t step = 1; step <= kSteps; ++step) {
      REQUIRE(StoredRecords(step) == OnOneHost().samples[static_cast<size_t>(step) - 1]);
    }
  }
  void LoseAgent(TestProcess& agent) {
    agent.Signal(SIGKILL);
    REQUIRE(agent.Wait() == -SIGKILL);
  }

 private:
  const int agents_;
};

// Two hosts with a trainer and a rollout each, and a number of spare ones.
struct Colocated : ElasticRun {
  explicit Colocated(int spare)
      : ElasticRun(2 + spare, {{"cluster.spare_hosts", std::to_string(spare)}}) {
    SetPairs(2);
    Set("trainer.nnodes", "2");
    Set("rollout.free_cache_engine", "true");
  }
};

TEST_CASE("a spare host runs the workers of one that is lost, and the bits stay") {
  const std::string phase = GENERATE("generate", "train", "sync", "save");
  Colocated rig(1);
  const bool by_rollout = phase == "generate";
  rig.SetFault(by_rollout ? "rollout" : "trainer", 1, phase, 2, "wait");
  std::vector<TestProcess*> agents;
  TestProcess& controller = rig.StartAll(&agents);
  rig.WaitForFault("the phase", controller);
  rig.LoseAgent(*agents[1]);
  INFO(phase);
  rig.RequireOutcome(controller);
  REQUIRE(Has(rig.Log("controller"), ") is lost: host 2 on c (boot "));
  REQUIRE(agents[0]->Wait() == 0);
  REQUIRE(agents[2]->Wait() == 0);
}

TEST_CASE(
    "without a spare host another runs a lost one's workers beside its own, and the bits "
    "stay") {
  Colocated rig(0);
  rig.SetFault("trainer", 1, "train", 2, "wait");
  std::vector<TestProcess*> agents;
  TestProcess& controller = rig.StartAll(&agents);
  rig.WaitForFault("the phase", controller);
  rig.LoseAgent(*agents[1]);
  rig.RequireOutcome(controller);
  REQUIRE(Has(rig.Log("controller"), "beside its own, and is slower for it"));
}

TEST_CASE("a host that was only cut off runs nothing more when it is back") {
  Colocated rig(1);
  rig.SetFault("trainer", 1, "train", 2, "stop");
  std::vector<TestProcess*> agents;
  TestProcess& controller = rig.StartAll(&agents);
  rig.WaitForFault("the phase", controller);
  agents[1]->Signal(SIGSTOP);  // its workers go on, and their beats are refused
  WaitUntil("the move", [&] { return Has(rig.Log("controller"), ") is lost: host 2 on c"); });
  agents[1]->Signal(SIGCONT);
  rig.RequireOutcome(controller);
  REQUIRE(agents[1]->Wait() == 0);
}

// One host with two trainers, and two with a rollout each.
struct Apart : ElasticRun {
  Apart() : ElasticRun(3, {}) {
    SetApart(2, 2);
    Set("rollout.nnodes", "2");
  }
};

TEST_CASE("apart, a run goes on without the rollouts of a lost host, and the bits stay") {
  const std::string phase = GENERATE("generate", "apply bucket");
  Apart rig;
  rig.SetFault("rollout", 1, phase, 2, "wait");
  std::vector<TestProcess*> agents;
  TestProcess& controller = rig.StartAll(&agents);
  rig.WaitForFault("the phase", controller);
  rig.LoseAgent(*agents[2]);
  INFO(phase);
  rig.RequireOutcome(controller);
  REQUIRE(Has(rig.Log("controller"), "is lost: the run goes on without rollout 1"));
}

TEST_CASE("apart, a host that comes later runs the rollouts that were left out") {
  Apart rig;
  // The controller stands still in the second step until the rollout is back.
  rig.SetFault("controller", 0, "train", 2, "wait");
  rig.AddFault("rollout", 1, "generate", 1, "wait");
  std::vector<TestProcess*> agents;
  TestProcess& controller = rig.StartAll(&agents);
  rig.WaitForFault("the phase", controller);
  rig.LoseAgent(*agents[2]);
  WaitUntil("the loss", [&] { return Has(rig.Log("controller"), "goes on without rollout 1"); });
  TestProcess& back = rig.StartAgentOf(2);
  rig.WaitForStatus("the rollout's return", [](const v1::GetStatusResponse& status) {
    return std::any_of(status.workers().begin(), status.workers().end(), [](const auto& worker) {
      return worker.worker().role() == v1::ROLE_ROLLOUT && worker.worker().rank() == 1 &&
             worker.state() == "registered";
    });
  });
  rig.ReleaseFault(1);
  rig.RequireOutcome(controller);
  REQUIRE(back.Wait() == 0);
  REQUIRE(Has(rig.Log("controller"), "rollout 1, which no host ran"));
  REQUIRE(Has(rig.Log("controller"), "rollout 1 takes part again"));
}

}  // namespace
}  // namespace tandem::testing
