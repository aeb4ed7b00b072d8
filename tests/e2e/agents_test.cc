// The workers of several hosts, started and watched by the agent of each. Hosts are told apart by
// --node on one machine.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include <catch2/catch.hpp>

#include "tests/e2e/placed_run.h"
#include "tests/support/text.h"

namespace tandem::testing {
namespace {

// Two hosts with a trainer and a rollout each: "a", where the controller is too, and "b".
struct AgentHosts : ClusterRig {
  explicit AgentHosts(Settings more = {}) : ClusterRig(Tiny(std::move(more))) {
    SetPairs(2);
    Set("trainer.nnodes", "2");
    Set("rollout.free_cache_engine", "true");
    ListenOnPort();
    UseNode("a");
  }
  TestProcess& StartAgentOn(const std::string& node,
                            int host,
                            const std::vector<std::string>& flags = {}) {
    UseNode(node);
    TestProcess& agent = StartAgent(host, 2, flags);
    UseNode("a");
    return agent;
  }
  // All logs, for the message of a test that fails.
  std::string Logs() const {
    std::string logs = Log("controller");
    for (int rank = 0; rank < 2; ++rank) {
      logs += Log("agent", rank) + Log("trainer", rank) + Log("rollout", rank);
    }
    return logs;
  }
  // That the run ended as on one host, and everything with it.
  void RequireOutcome(const PlacedRun& expected) {
    REQUIRE(LeftBehind() == "");
    REQUIRE(OutcomeOf(*this, kSteps).weights == expected.outcome.weights);
    for (int64_t step = 1; step <= kSteps; ++step) {
      REQUIRE(StoredRecords(step) == expected.samples[static_cast<size_t>(step) - 1]);
    }
  }
};

const PlacedRun& UnderOneLauncher() {
  static const PlacedRun run = RunColocated();
  return run;
}

TEST_CASE("two agents run a run with the bits of one host, and end with it") {
  AgentHosts rig;
  TestProcess& first = rig.StartAgentOn("a", 0);  // agents may come before their controller
  TestProcess& controller = rig.StartController();
  TestProcess& second = rig.StartAgentOn("b", 1);
  const int code = controller.Wait();
  INFO(rig.Logs());
  REQUIRE(code == 0);
  REQUIRE(first.Wait() == 0);
  REQUIRE(second.Wait() == 0);
  RequireSame(ReadPlacedRun(rig), UnderOneLauncher());
  REQUIRE(Has(rig.Log("controller"), "The agent of host 1 registered"));
  REQUIRE(Has(rig.Log("controller"), "trainer 1 registered"));
}

TEST_CASE("a worker that dies on a host is started again by the agent there, and the bits stay") {
  // Long enough that the run would not go on without the agent's word that the process has ended.
  AgentHosts rig(Settings{{"cluster.heartbeat_timeout_seconds", "120"}});
  rig.SetFault("trainer", 1, "train", 2);
  TestProcess& controller = rig.StartController();
  rig.StartAgentOn("a", 0);
  TestProcess& second = rig.StartAgentOn("b", 1);
  const int code = controller.Wait();
  INFO(rig.Logs());
  REQUIRE(code == 0);
  REQUIRE(rig.FaultFired());
  REQUIRE(second.Wait() == 0);
  REQUIRE(Has(rig.Log("agent", 1), "trainer 1 died: signal 9 (Killed); restart 1 of"));
  REQUIRE(Has(rig.Log("controller"), "has ended (signal 9), as the agent there says"));
  rig.RequireOutcome(UnderOneLauncher());
}

TEST_CASE("a worker that hangs on another host is killed by the agent there") {
  AgentHosts rig(Settings{{"cluster.heartbeat_timeout_seconds", "2"}});
  rig.SetFault("rollout", 1, "generate", 12, "stop");
  TestProcess& controller = rig.StartController();
  rig.StartAgentOn("a", 0);
  rig.StartAgentOn("b", 1);
  const int code = controller.Wait();
  INFO(rig.Logs());
  REQUIRE(code == 0);
  REQUIRE(rig.FaultFired());
  REQUIRE(Has(rig.Log("agent", 1), "rollout 1 hangs, as the controller says; killed it"));
  rig.RequireOutcome(UnderOneLauncher());
}

TEST_CASE("an agent that dies takes its workers along, and another in its place goes on") {
  AgentHosts rig(Settings{{"cluster.heartbeat_timeout_seconds", "5"}});
  rig.SetFault("trainer", 1, "train", 2, "wait");
  TestProcess& controller = rig.StartController();
  rig.StartAgentOn("a", 0);
  TestProcess& victim = rig.StartAgentOn("b", 1);
  rig.WaitForFault("the middle of a step", controller);
  const ClusterRig::CtlResult table = rig.Ctl({"status"});
  INFO(table.output);
  REQUIRE(Has(table.output, "host 1 of 2"));
  REQUIRE(Has(table.output, "trainer 1 (pid "));
  REQUIRE(Has(rig.Ctl({"--json", "status"}).output, "\"agents\""));
  victim.Signal(SIGKILL);
  REQUIRE(victim.Wait() == -SIGKILL);
  WaitUntil("its workers' end", [&] {
    for (const std::string& process : rig.Running()) {
      if (Has(process, "--node b")) return false;
    }
    return true;
  });
  // It waits until the silence of the one before has lasted.
  TestProcess& next = rig.StartAgentOn("b", 1);
  const int code = controller.Wait();
  INFO(rig.Logs());
  REQUIRE(code == 0);
  REQUIRE(next.Wait() == 0);
  rig.RequireOutcome(UnderOneLauncher());
}

TEST_CASE("a worker that cannot run ends everything with its code and the reason") {
  AgentHosts rig;
  const std::string programs = rig.dir() / "programs";
  std::filesystem::create_directories(programs);
  for (const char* name : {"tandem-trainer", "tandem-rollout"}) {
    std::ofstream(programs + "/" + name) << "#!/bin/sh\necho no luck with \"$0\"\nexit 64\n";
    std::filesystem::permissions(programs + "/" + name, std::filesystem::perms::owner_all);
  }
  TestProcess& controller = rig.StartController();
  TestProcess& first = rig.StartAgentOn("a", 0);
  TestProcess& second = rig.StartAgentOn("b", 1, {"--bin-dir", programs});
  const int code = controller.Wait();
  INFO(rig.Logs());
  REQUIRE(code == 64);
  REQUIRE(first.Wait() == 0);
  REQUIRE(second.Wait() == 64);
  REQUIRE(Has(rig.Log("controller"), " 1 on b (boot "));
  REQUIRE(Has(rig.Log("controller"), "cannot run; the last lines of its log there"));
  REQUIRE(Has(rig.Log("controller"), "no luck with"));
  REQUIRE(rig.LeftBehind() == "");
}

TEST_CASE("a controller that dies is started again under its agents, which stop nothing") {
  AgentHosts rig;
  rig.SetFault("controller", 0, "train", 2);
  TestProcess& controller = rig.StartController({"--launch-id", "one"});
  rig.StartAgentOn("a", 0);
  TestProcess& second = rig.StartAgentOn("b", 1);
  const int died = controller.Wait();
  INFO(rig.Logs());
  REQUIRE(died == -SIGKILL);
  const int code = rig.StartController({"--launch-id", "one"}).Wait();
  INFO(rig.Logs());
  REQUIRE(code == 0);
  REQUIRE(second.Wait() == 0);
  for (int host = 0; host < 2; ++host) REQUIRE_FALSE(Has(rig.Log("agent", host), "restart"));
  rig.RequireOutcome(UnderOneLauncher());
}

TEST_CASE("an agent that finds no controller, or loses it, ends with 69 and leaves nothing") {
  AgentHosts rig(Settings{{"cluster.controller_lost_seconds", "3"}});
  REQUIRE(rig.StartAgentOn("a", 0, {"--join-timeout", "1"}).Wait() == 69);
  REQUIRE(Has(rig.Log("agent"), "no controller at 127.0.0.1:"));
  rig.SetFault("controller", 0, "train", 2);
  TestProcess& controller = rig.StartController();
  TestProcess& first = rig.StartAgentOn("a", 0);
  TestProcess& second = rig.StartAgentOn("b", 1);
  REQUIRE(controller.Wait() == -SIGKILL);
  const int code = first.Wait();
  INFO(rig.Logs());
  REQUIRE(code == 69);
  REQUIRE(second.Wait() == 69);
  REQUIRE(Has(rig.Log("agent", 1), "cluster.controller_lost_seconds"));
  REQUIRE(rig.LeftBehind() == "");
}

TEST_CASE("an agent that is stopped ends its workers, and its place is free at once") {
  AgentHosts rig(Settings{{"cluster.heartbeat_timeout_seconds", "120"}});
  rig.SetFault("trainer", 1, "train", 2, "wait");
  TestProcess& controller = rig.StartController();
  rig.StartAgentOn("a", 0);
  TestProcess& stopped = rig.StartAgentOn("b", 1);
  rig.WaitForFault("the middle of a step", controller);
  stopped.Signal(SIGUSR1);  // means nothing to it
  stopped.Signal(SIGTERM);
  REQUIRE(stopped.Wait() == 128 + SIGTERM);
  TestProcess& next = rig.StartAgentOn("b", 1);
  const int code = controller.Wait();
  INFO(rig.Logs());
  REQUIRE(code == 0);
  REQUIRE(next.Wait() == 0);
  rig.RequireOutcome(UnderOneLauncher());
}

TEST_CASE("agents of another number of hosts than the configuration's are refused") {
  AgentHosts rig;
  TestProcess& controller = rig.StartController();
  TestProcess& agent = rig.StartAgent(0, 3);
  const int code = agent.Wait();
  INFO(rig.Logs());
  REQUIRE(code == 64);
  REQUIRE(Has(rig.Log("agent"), "is one of 3 (--hosts)"));
  REQUIRE(Has(rig.Log("agent"), "agents are for 2 hosts"));
  controller.Signal(SIGTERM);
  controller.Wait();
}

TEST_CASE("apart, agents put trainers on the first hosts and rollouts on the others") {
  ClusterRig rig(Tiny());
  rig.SetApart(2, 1);
  rig.ListenOnPort();
  rig.UseNode("a");
  TestProcess& controller = rig.StartController();
  rig.StartAgent(0, 2);
  rig.UseNode("b");
  rig.StartAgent(1, 2);
  const int code = controller.Wait();
  INFO(rig.Log("controller") << rig.Log("agent") << rig.Log("agent", 1));
  REQUIRE(code == 0);
  RequireSame(ReadPlacedRun(rig), UnderOneLauncher());
  REQUIRE(Has(rig.Log("controller"), "The agent of host 1 registered"));
}

}  // namespace
}  // namespace tandem::testing
