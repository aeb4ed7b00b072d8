#include "controller/workers/agents/agent_registry.h"

#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "common/net/protocol.h"
#include "common/process/exit_code.h"
#include "tests/fakes/fake_clock.h"
#include "tests/support/text.h"

namespace tandem {

using testing::Says;

namespace {

constexpr WorkerKey kTrainerOne{WorkerRole::kTrainer, 1};
constexpr WorkerKey kRolloutOne{WorkerRole::kRollout, 1};

struct AgentsFixture {
  testing::FakeClock clock;
  AgentRegistryOptions options{
      .topology = {.trainers = 2, .rollouts = 2, .trainer_hosts = 2, .rollout_hosts = 2},
      .device = "cuda",
      .heartbeat_timeout = absl::Seconds(10),
      .build = "ours",
      .build_id = "id",
      .run_dir = "/r",
      .limits = {.max_restarts = 7}};
};

AgentNews AgentOn(const std::string& node, int host_index, int hosts = 2) {
  return {.protocol = kProtocolVersion,
          .build = "theirs",
          .build_id = "id",
          .host = {.boot_id = "boot", .node = node},
          .host_index = host_index,
          .hosts = hosts,
          .boot_nonce = node,
          .pid = 100 + host_index};
}

}  // namespace

TEST_CASE("AgentRegistry tells each host what it shall run, and the limits", "[agents]") {
  AgentsFixture f;
  AgentRegistry agents(f.options, f.clock);
  const auto first = agents.Beat(AgentOn("a", 0));
  REQUIRE(first.ok());
  REQUIRE(first->is_new);
  REQUIRE_FALSE(first->orders.over);
  REQUIRE(first->orders.run_dir == "/r");
  REQUIRE(first->orders.limits.max_restarts == 7);
  REQUIRE_FALSE(agents.Beat(AgentOn("a", 0))->is_new);
  REQUIRE(agents.Beat(AgentOn("b", 1))->orders.processes ==
          std::vector<AgentOrder>{{kTrainerOne, "cuda:0"}, {kRolloutOne, "cuda:0"}});
  REQUIRE(agents.Agents().size() == 2);
}

TEST_CASE("AgentRegistry gives roles with devices of their own hosts or one, as agents are started",
          "[agents]") {
  AgentsFixture f;
  f.options.topology = {.trainers = 2, .rollouts = 1, .apart = true};
  const WorkerKey rollout{WorkerRole::kRollout, 0};
  AgentRegistry parted(f.options, f.clock);
  REQUIRE(parted.Beat(AgentOn("a", 0))->orders.processes.size() == 2);
  REQUIRE(parted.Beat(AgentOn("b", 1))->orders.processes ==
          std::vector<AgentOrder>{{rollout, "cuda:0"}});
  AgentRegistry together(f.options, f.clock);
  REQUIRE(together.Beat(AgentOn("a", 0, 1))->orders.processes ==
          std::vector<AgentOrder>{
              {{WorkerRole::kTrainer, 0}, "cuda:0"}, {rollout, "cuda:2"}, {kTrainerOne, "cuda:1"}});
}

TEST_CASE("AgentRegistry refuses another number of hosts, with both numbers", "[agents]") {
  AgentsFixture f;
  AgentRegistry agents(f.options, f.clock);
  const absl::Status three = agents.Beat(AgentOn("a", 0, 3)).status();
  REQUIRE(absl::IsFailedPrecondition(three));
  REQUIRE(Says(three, "the agent of host 0 on a (boot boot) is one of 3 (--hosts)"));
  REQUIRE(Says(three, "agents are for 2 hosts"));
  const absl::Status beyond = agents.Beat(AgentOn("a", 2)).status();
  REQUIRE(absl::IsInvalidArgument(beyond));
  REQUIRE(Says(beyond, "of 2 hosts the indices are 0 to 1"));
  REQUIRE(agents.Agents().empty());
  f.options.topology = {.trainers = 2, .rollouts = 1, .apart = true};
  AgentRegistry either(f.options, f.clock);
  REQUIRE(either.Beat(AgentOn("a", 0, 2)).ok());
  const absl::Status mixed = either.Beat(AgentOn("b", 0, 1)).status();
  REQUIRE(absl::IsAlreadyExists(mixed));
  REQUIRE(either.Beat(AgentOn("b", 1, 2)).ok());
}

TEST_CASE("AgentRegistry refuses agents that were told different numbers of hosts", "[agents]") {
  AgentsFixture f;
  f.options.topology = {
      .trainers = 2, .rollouts = 2, .apart = true, .trainer_hosts = 2, .rollout_hosts = 2};
  AgentRegistry agents(f.options, f.clock);
  REQUIRE(agents.Beat(AgentOn("a", 0, 2)).ok());
  const absl::Status other = agents.Beat(AgentOn("b", 1, 4)).status();
  REQUIRE(absl::IsFailedPrecondition(other));
  REQUIRE(Says(other, "is one of 4 hosts, and the agent of host 0 on a (boot boot) one of 2"));
  f.clock.Advance(absl::Seconds(10));
  agents.DetectLost();  // who is lost is not asked
  REQUIRE(agents.Beat(AgentOn("b", 1, 4)).ok());
}

TEST_CASE("AgentRegistry refuses another build unless the configuration allows it", "[agents]") {
  AgentsFixture f;
  AgentNews news = AgentOn("a", 0);
  news.build_id = "other";
  const absl::Status refused = AgentRegistry(f.options, f.clock).Beat(news).status();
  REQUIRE(absl::IsFailedPrecondition(refused));
  REQUIRE(Says(refused, "of another build (theirs) than this controller (ours)"));
  f.options.allow_other_build = true;
  REQUIRE(AgentRegistry(f.options, f.clock).Beat(news).ok());
  news.protocol = kProtocolVersion + 1;
  REQUIRE(absl::IsInvalidArgument(AgentRegistry(f.options, f.clock).Beat(news).status()));
}

TEST_CASE("AgentRegistry keeps a host's place for the agent that sends beats", "[agents]") {
  AgentsFixture f;
  AgentRegistry agents(f.options, f.clock);
  REQUIRE(agents.Beat(AgentOn("a", 0)).ok());
  AgentNews next = AgentOn("a", 0);
  next.boot_nonce = "next";
  f.clock.Advance(absl::Seconds(9));
  REQUIRE(agents.DetectLost().empty());
  const absl::Status taken = agents.Beat(next).status();
  REQUIRE(absl::IsAlreadyExists(taken));
  REQUIRE(Says(taken, "host 0 has an agent, process 100 on a (boot boot)"));
  REQUIRE(Says(taken, "last message 9s ago"));
  f.clock.Advance(absl::Seconds(1));
  REQUIRE(agents.DetectLost().size() == 1);
  REQUIRE(agents.DetectLost().empty());
  REQUIRE(agents.Beat(next)->is_new);
  // The one before finds its place taken.
  REQUIRE(absl::IsAlreadyExists(agents.Beat(AgentOn("a", 0)).status()));
  // An agent that leaves gives it up at once.
  next.leaving = true;
  REQUIRE(agents.Beat(next).ok());
  REQUIRE(agents.Agents().empty());
  REQUIRE(agents.Beat(AgentOn("a", 0)).ok());
}

TEST_CASE("AgentRegistry wants one agent on each host", "[agents]") {
  AgentsFixture f;
  AgentRegistry agents(f.options, f.clock);
  REQUIRE(agents.Beat(AgentOn("a", 0)).ok());
  AgentNews second = AgentOn("a", 1);
  second.boot_nonce = "second";
  const absl::Status refused = agents.Beat(second).status();
  REQUIRE(absl::IsFailedPrecondition(refused));
  REQUIRE(Says(refused, "are on one host"));
}

TEST_CASE("An agent that was cut off for a while goes on where nobody took its place", "[agents]") {
  AgentsFixture f;
  AgentRegistry agents(f.options, f.clock);
  REQUIRE(agents.Beat(AgentOn("a", 0)).ok());
  f.clock.Advance(absl::Minutes(1));
  REQUIRE(agents.DetectLost().size() == 1);
  REQUIRE_FALSE(agents.Beat(AgentOn("a", 0))->is_new);
  REQUIRE_FALSE(agents.Agents().front().lost);
}

TEST_CASE("AgentRegistry asks an agent to kill what it has, until that is gone", "[agents]") {
  AgentsFixture f;
  AgentRegistry agents(f.options, f.clock);
  AgentNews news = AgentOn("b", 1);
  news.processes = {{.key = kTrainerOne, .pid = 71, .starts = 1}};
  REQUIRE(agents.Beat(news).ok());
  REQUIRE_FALSE(agents.AskToKill(news.host, kTrainerOne, 70));
  REQUIRE_FALSE(agents.AskToKill({.boot_id = "boot", .node = "a"}, kTrainerOne, 71));
  REQUIRE(agents.AskToKill(news.host, kTrainerOne, 71));
  REQUIRE(agents.AskToKill(news.host, kTrainerOne, 71));
  // Also of a beat whose answer was lost.
  for (int i = 0; i < 2; ++i) {
    REQUIRE(agents.Beat(news)->orders.kill == std::vector<AgentVictim>{{kTrainerOne, 71}});
  }
  news.processes = {{.key = kTrainerOne, .pid = 72, .starts = 2, .ended_pid = 71}};
  REQUIRE(agents.Beat(news)->orders.kill.empty());
}

TEST_CASE("A run that is over is over when all living agents were told", "[agents]") {
  AgentsFixture f;
  AgentRegistry agents(f.options, f.clock);
  REQUIRE(agents.AllToldOver());  // there are none
  REQUIRE(agents.Beat(AgentOn("a", 0)).ok());
  REQUIRE(agents.Beat(AgentOn("b", 1)).ok());
  agents.EndRun();
  REQUIRE_FALSE(agents.AllToldOver());
  const auto told = agents.Beat(AgentOn("a", 0));
  REQUIRE(told->orders.over);
  REQUIRE(told->orders.processes.empty());
  REQUIRE_FALSE(agents.AllToldOver());
  f.clock.Advance(absl::Seconds(10));
  agents.DetectLost();
  REQUIRE(agents.AllToldOver());
}

TEST_CASE("What an agent cannot mend ends the run with its code, host and worker", "[agents]") {
  AgentNews news = AgentOn("b", 1);
  news.failure = AgentFailure{.key = kRolloutOne,
                              .code = kExitRefused,
                              .reason = "rollout 1 cannot run: exit code 64",
                              .log = "no such flag\n"};
  const absl::Status refused = FailureOf(news);
  REQUIRE(ExitCodeAt(FailedAt::kRun, refused) == kExitRefused);
  REQUIRE(Says(refused, "rollout 1 on b (boot boot) (host 1) ends the run: rollout 1 cannot run"));
  REQUIRE(Says(refused, "no such flag"));
  news.failure->code = kExitInternal;
  REQUIRE(ExitCodeAt(FailedAt::kRun, FailureOf(news)) == kExitInternal);
}

namespace {

// Of two hosts and a spare one, as far as they have come.
struct ElasticFixture : AgentsFixture {
  ElasticFixture() {
    options.elastic = true;
    options.spare_hosts = 1;
    options.join_time = absl::Seconds(30);
  }
  // Time passes, and those of `nodes` send beats: "a" has index 0.
  void Pass(AgentRegistry& agents, absl::Duration time, const std::string& nodes) {
    const Instant end = clock.Now() + time;
    while (clock.Now() < end) {
      clock.Advance(absl::Seconds(1));
      for (const char node : nodes) {
        REQUIRE(agents.Beat(AgentOn(std::string(1, node), node - 'a', 3)).ok());
      }
      agents.DetectLost();
    }
  }
  static std::vector<AgentOrder> OrdersOf(AgentRegistry& agents, const std::string& node) {
    return agents.Beat(AgentOn(node, node[0] - 'a', 3))->orders.processes;
  }
};

const std::vector<AgentOrder> kHostOne = {{kTrainerOne, "cuda:0"}, {kRolloutOne, "cuda:0"}};

}  // namespace

TEST_CASE("AgentRegistry has a spare agent run the workers of a lost one, which then runs nothing",
          "[agents]") {
  ElasticFixture f;
  AgentRegistry agents(f.options, f.clock);
  f.Pass(agents, absl::Seconds(5), "abc");
  REQUIRE(f.OrdersOf(agents, "b") == kHostOne);
  REQUIRE(f.OrdersOf(agents, "c").empty());
  f.Pass(agents, absl::Seconds(9), "ac");
  REQUIRE(agents.MoveWorkers().empty());
  f.Pass(agents, absl::Seconds(1), "ac");
  const std::vector<MovedWorkers> moved = agents.MoveWorkers();
  REQUIRE(moved.size() == 1);
  REQUIRE(moved[0].workers == std::vector<WorkerKey>{kTrainerOne, kRolloutOne});
  REQUIRE(moved[0].to == HostId{"boot", "c"});
  REQUIRE(moved[0].text ==
          "host 1 on b (boot boot) is lost: host 2 on c (boot boot) runs trainer 1 and rollout 1");
  REQUIRE(f.OrdersOf(agents, "c") == kHostOne);
  REQUIRE(f.OrdersOf(agents, "b").empty());
  REQUIRE(agents.MoveWorkers().empty());
}

TEST_CASE("AgentRegistry waits for an agent that has left as for one that is silent", "[agents]") {
  ElasticFixture f;
  AgentRegistry agents(f.options, f.clock);
  f.Pass(agents, absl::Seconds(5), "abc");
  AgentNews leaving = AgentOn("b", 1, 3);
  leaving.leaving = true;
  REQUIRE(agents.Beat(leaving).ok());
  REQUIRE(agents.MoveWorkers().empty());
  f.Pass(agents, absl::Seconds(10), "ac");
  REQUIRE(agents.MoveWorkers().size() == 1);
}

TEST_CASE("AgentRegistry takes an agent that never came for gone after the time to join",
          "[agents]") {
  ElasticFixture f;
  AgentRegistry agents(f.options, f.clock);
  f.Pass(agents, absl::Seconds(29), "ac");
  REQUIRE(agents.MoveWorkers().empty());
  f.Pass(agents, absl::Seconds(1), "ac");
  const std::vector<MovedWorkers> moved = agents.MoveWorkers();
  REQUIRE(moved.size() == 1);
  REQUIRE(f.OrdersOf(agents, "c") == kHostOne);
}

TEST_CASE("AgentRegistry keeps the place of an agent for one that waits for it", "[agents]") {
  ElasticFixture f;
  AgentRegistry agents(f.options, f.clock);
  f.Pass(agents, absl::Seconds(5), "abc");
  // Another process on the same host, as the first one died: it asks every few seconds.
  AgentNews successor = AgentOn("b", 1, 3);
  successor.boot_nonce = "another";
  for (int second = 0; second < 10; second += 2) {
    f.Pass(agents, absl::Seconds(2), "ac");
    REQUIRE(agents.MoveWorkers().empty());
    if (second < 8) REQUIRE(absl::IsAlreadyExists(agents.Beat(successor).status()));
  }
  REQUIRE(agents.Beat(successor)->orders.processes == kHostOne);
  REQUIRE(agents.MoveWorkers().empty());
}

TEST_CASE("AgentRegistry doubles nothing up where options say so", "[agents]") {
  ElasticFixture f;
  f.options.double_up = false;
  AgentRegistry agents(f.options, f.clock);
  f.Pass(agents, absl::Seconds(30), "ab");
  f.Pass(agents, absl::Seconds(20), "a");
  REQUIRE(agents.MoveWorkers().empty());
  REQUIRE(f.OrdersOf(agents, "a").size() == 2);
}

TEST_CASE("AgentRegistry says that a host is slower that runs a lost one's workers as well",
          "[agents]") {
  ElasticFixture f;
  AgentRegistry agents(f.options, f.clock);
  f.Pass(agents, absl::Seconds(30), "ab");
  f.Pass(agents, absl::Seconds(10), "a");
  const std::vector<MovedWorkers> moved = agents.MoveWorkers();
  REQUIRE(moved.size() == 1);
  REQUIRE(Says(absl::InternalError(moved[0].text), "beside its own, and is slower for it"));
  REQUIRE(f.OrdersOf(agents, "a").size() == 4);
  // At the end nothing moves any more.
  agents.EndRun();
  f.clock.Advance(absl::Seconds(60));
  agents.DetectLost();
  REQUIRE(agents.MoveWorkers().empty());
}

TEST_CASE("AgentRegistry of a restarted controller leaves what moved before where it is",
          "[agents]") {
  ElasticFixture f;
  AgentRegistry agents(f.options, f.clock);
  REQUIRE(f.OrdersOf(agents, "b") == kHostOne);  // back, and idle, since before the restart
  AgentNews spare = AgentOn("c", 2, 3);
  spare.processes = {{.key = kTrainerOne, .pid = 7}, {.key = kRolloutOne, .pid = 8}};
  REQUIRE(agents.Beat(spare)->orders.processes == kHostOne);
  REQUIRE(f.OrdersOf(agents, "b").empty());
  // An agent that says the same later is told to stop them.
  AgentNews other = AgentOn("a", 0, 3);
  other.processes = {{.key = kTrainerOne, .pid = 9}};
  REQUIRE(agents.Beat(other)->orders.processes.front().key.rank == 0);
  REQUIRE(f.OrdersOf(agents, "b").empty());
}

TEST_CASE("AgentRegistry counts spare hosts in the number that it expects", "[agents]") {
  ElasticFixture f;
  AgentRegistry agents(f.options, f.clock);
  const absl::Status two = agents.Beat(AgentOn("a", 0, 2)).status();
  REQUIRE(absl::IsFailedPrecondition(two));
  REQUIRE(Says(two, "agents are for 2 hosts, and 1 spare (cluster.spare_hosts)"));
}

}  // namespace tandem
