#include "deploy/launcher/supervisor.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <signal.h>

#include "common/base/clock.h"
#include "tests/fakes/fake_clock.h"

namespace tandem {
namespace {

constexpr ProcessId kController{Role::kController, 0};
constexpr ProcessId kTrainer0{Role::kTrainer, 0};
constexpr ProcessId kTrainer1{Role::kTrainer, 1};
constexpr ProcessId kRollout0{Role::kRollout, 0};
constexpr ProcessId kRollout1{Role::kRollout, 1};

// "spawn trainer 1, kill controller, finish 70": the messages are left out.
std::string Text(const Actions& actions) {
  std::string text;
  for (const Action& action : actions) {
    std::string part;
    switch (action.kind) {
      case Action::Kind::kSpawn:
        part = "spawn " + action.id.ToString();
        break;
      case Action::Kind::kTerminate:
        part = "terminate " + action.id.ToString();
        break;
      case Action::Kind::kKill:
        part = "kill " + action.id.ToString();
        break;
      case Action::Kind::kReport:
        part = fmt::format("report {} {}", action.id.ToString(), action.code);
        break;
      case Action::Kind::kFinish:
        part = fmt::format("finish {}", action.code);
        break;
      case Action::Kind::kSay:
        continue;
    }
    text += (text.empty() ? "" : ", ") + part;
  }
  return text;
}

std::string Said(const Actions& actions) {
  std::string text;
  for (const Action& action : actions) {
    if (action.kind == Action::Kind::kSay) text += action.text + "\n";
  }
  return text;
}

std::vector<ProcessId> OnePair() { return {kController, kTrainer0, kRollout0}; }
std::vector<ProcessId> TwoPairs() {
  return {kController, kTrainer0, kRollout0, kTrainer1, kRollout1};
}

struct Fixture {
  explicit Fixture(SupervisorOptions options = {.processes = TwoPairs(), .max_restarts = 2})
      : supervisor(options) {
    started = Text(supervisor.Start(now));
  }
  std::string Exit(ProcessId id, int code) {
    return Text(supervisor.OnExit(id, {.code = code}, now));
  }
  std::string Crash(ProcessId id) { return Text(supervisor.OnExit(id, {.signal = SIGKILL}, now)); }
  void AllWorkersExit() {
    for (const ProcessId& id : {kTrainer0, kTrainer1, kRollout0}) REQUIRE(Exit(id, 0).empty());
  }

  Instant now = Instant(absl::Seconds(1000));
  Supervisor supervisor;
  std::string started;
};

constexpr char kTerminateWorkers[] =
    "terminate trainer 0, terminate trainer 1, terminate rollout 0, terminate rollout 1";

TEST_CASE("one controller and all pairs are started") {
  REQUIRE(Fixture().started ==
          "spawn controller, spawn trainer 0, spawn rollout 0, spawn trainer 1, spawn rollout 1");
}

TEST_CASE("a controller that is done stops the workers, and then all is done with 0") {
  Fixture f;
  REQUIRE(f.Exit(kController, 0) == kTerminateWorkers);
  f.AllWorkersExit();
  REQUIRE_FALSE(f.supervisor.done());
  REQUIRE(f.Crash(kRollout1) == "finish 0");
  REQUIRE(f.supervisor.done());
}

TEST_CASE("workers that outlive the grace period are killed") {
  Fixture f;
  f.Exit(kController, 0);
  f.AllWorkersExit();
  REQUIRE(f.supervisor.NextDeadline() == f.now + absl::Seconds(20));
  REQUIRE(Text(f.supervisor.OnTick(f.now + absl::Seconds(19))).empty());
  REQUIRE(Text(f.supervisor.OnTick(f.now + absl::Seconds(20))) == "kill rollout 1");
  REQUIRE(f.Crash(kRollout1) == "finish 0");
}

TEST_CASE("a worker that dies is restarted, a second time after a delay") {
  Fixture f;
  const Actions actions = f.supervisor.OnExit(kTrainer1, {.signal = SIGKILL}, f.now);
  REQUIRE(Text(actions) == "spawn trainer 1");
  REQUIRE(Said(actions) == "trainer 1 died: signal 9 (Killed); restart 1 of 2\n");
  REQUIRE(f.Exit(kTrainer1, 75).empty());
  REQUIRE(f.supervisor.NextDeadline() == f.now + absl::Seconds(1));
  REQUIRE(Text(f.supervisor.OnTick(f.supervisor.NextDeadline())) == "spawn trainer 1");
  REQUIRE(f.supervisor.NextDeadline() == Instant::InfiniteFuture());
}

TEST_CASE(
    "when restarts are spent everything stops, the controller first, and the error says why") {
  Fixture f({.processes = TwoPairs(), .max_restarts = 1});
  REQUIRE(f.Exit(kRollout0, 70) == "spawn rollout 0");
  const Actions actions = f.supervisor.OnExit(kRollout1, {.code = 69}, f.now);
  REQUIRE(Text(actions) == "terminate controller");
  REQUIRE(Said(actions) ==
          "rollout 1 died: exit code 69, and all restarts of a rollout are used "
          "(cluster.max_restarts = 1)\n");
  REQUIRE(f.Exit(kController, 0) ==
          "terminate trainer 0, terminate trainer 1, terminate rollout 0");
  f.Exit(kTrainer0, 0);
  f.Exit(kTrainer1, 0);
  const Actions last = f.supervisor.OnExit(kRollout0, {}, f.now);
  REQUIRE(Text(last) == "finish 70");
  REQUIRE(last.back().text.find("all restarts of a rollout are used (cluster.max_restarts = 1)") !=
          std::string::npos);
}

TEST_CASE("each role has restarts of its own, and gets them back after the window") {
  Fixture f({.processes = TwoPairs(), .max_restarts = 1, .restart_window = absl::Hours(1)});
  REQUIRE(f.Crash(kRollout0) == "spawn rollout 0");
  REQUIRE(f.Crash(kTrainer0) == "spawn trainer 0");
  REQUIRE(f.Crash(kController) == "spawn controller");
  f.now += absl::Minutes(61);
  const Actions actions = f.supervisor.OnExit(kRollout1, {.signal = SIGKILL}, f.now);
  REQUIRE(Text(actions) == "spawn rollout 1");
  REQUIRE(Said(actions) == "rollout 1 died: signal 9 (Killed); restart 1 of 1\n");
  f.now += absl::Minutes(59);
  REQUIRE(f.Crash(kRollout0) == "terminate controller");
}

TEST_CASE("a controller that falls silent is killed and restarted") {
  Fixture f({.processes = OnePair(), .max_restarts = 2, .watchdog = absl::Seconds(120)});
  f.supervisor.OnAlive(f.now);
  f.now += absl::Seconds(100);
  f.supervisor.OnAlive(f.now);
  REQUIRE(f.supervisor.NextDeadline() == f.now + absl::Seconds(120));
  REQUIRE(Text(f.supervisor.OnTick(f.now + absl::Seconds(119))).empty());
  f.now += absl::Seconds(120);
  const Actions actions = f.supervisor.OnTick(f.now);
  REQUIRE(Text(actions) == "kill controller");
  REQUIRE(Said(actions) ==
          "The controller has given no sign of life for 2m (cluster.watchdog_seconds): killing "
          "it\n");
  REQUIRE(Text(f.supervisor.OnTick(f.now + absl::Hours(1))).empty());
  REQUIRE(f.Crash(kController) == "spawn controller");
  REQUIRE(f.supervisor.NextDeadline() == f.now + absl::Seconds(120));
}

TEST_CASE("a controller that stands still before its first sign of life is killed and restarted") {
  Fixture f({.processes = OnePair(), .max_restarts = 2, .watchdog = absl::Seconds(120)});
  REQUIRE(f.supervisor.NextDeadline() == f.now + absl::Seconds(120));
  REQUIRE(Text(f.supervisor.OnTick(f.now + absl::Seconds(119))).empty());
  f.now += absl::Seconds(120);
  REQUIRE(Text(f.supervisor.OnTick(f.now)) == "kill controller");
  REQUIRE(f.Crash(kController) == "spawn controller");
  // So is the one that was started in its place.
  REQUIRE(Text(f.supervisor.OnTick(f.now + absl::Seconds(119))).empty());
  f.now += absl::Seconds(120);
  REQUIRE(Text(f.supervisor.OnTick(f.now)) == "kill controller");
}

// Instants of a clock that follows nothing but time; the machine's date is set between them.
struct DateFixture {
  explicit DateFixture(const SupervisorOptions& options) : supervisor(options) {
    supervisor.Start(clock.Now());
  }
  // The date is set, then `time` passes.
  void Pass(absl::Duration change, absl::Duration time) {
    clock.SetDate(change);
    clock.Advance(time);
  }
  std::string Crash(ProcessId id) {
    return Text(supervisor.OnExit(id, {.signal = SIGKILL}, clock.Now()));
  }
  std::string Tick() { return Text(supervisor.OnTick(clock.Now())); }

  testing::FakeClock clock;
  Supervisor supervisor;
};

TEST_CASE("no change of the machine's date gives restarts back, or takes them") {
  for (const absl::Duration change : {absl::Hours(1), -absl::Hours(1)}) {
    DateFixture f({.processes = OnePair(), .max_restarts = 2, .restart_window = absl::Hours(1)});
    REQUIRE(f.Crash(kTrainer0) == "spawn trainer 0");
    f.Pass(change, absl::Minutes(10));
    REQUIRE(f.Crash(kTrainer0).empty());  // its second restart has a delay, which no date shortens
    f.Pass(change, absl::Milliseconds(999));
    REQUIRE(f.Tick().empty());
    f.Pass(-change, absl::Milliseconds(1));
    REQUIRE(f.Tick() == "spawn trainer 0");
    f.Pass(change, absl::Minutes(51));  // the first has left the window
    REQUIRE(f.Crash(kTrainer0).empty());
    f.Pass(change, absl::Minutes(1));
    REQUIRE(f.Tick() == "spawn trainer 0");
    f.Pass(change, absl::Minutes(7));  // two are in it
    REQUIRE(f.Crash(kTrainer0) == "terminate controller");
  }
}

TEST_CASE("no change of the machine's date makes a controller silent, or hides that it is") {
  for (const absl::Duration change : {absl::Hours(1), -absl::Hours(1)}) {
    DateFixture f({.processes = OnePair(), .max_restarts = 2, .watchdog = absl::Seconds(120)});
    f.supervisor.OnAlive(f.clock.Now());
    f.Pass(change, absl::Seconds(119));
    REQUIRE(f.Tick().empty());
    f.supervisor.OnAlive(f.clock.Now());
    f.Pass(-change, absl::Seconds(119));
    REQUIRE(f.Tick().empty());
    f.Pass(change, absl::Seconds(1));
    REQUIRE(f.Tick() == "kill controller");
    REQUIRE(f.Crash(kController) == "spawn controller");
    // A stop has its time as well.
    REQUIRE(Text(f.supervisor.OnStopRequest(SIGTERM, f.clock.Now())) == "terminate controller");
    f.Pass(change, absl::Seconds(599));
    REQUIRE(f.Tick().empty());
    f.Pass(-change, absl::Seconds(1));
    REQUIRE(f.Tick() == "kill controller, kill trainer 0, kill rollout 0");
  }
}

TEST_CASE("a controller that was asked to stop is not watched") {
  Fixture f({.processes = OnePair(), .max_restarts = 2, .watchdog = absl::Seconds(1)});
  f.supervisor.OnAlive(f.now);
  f.supervisor.OnStopRequest(SIGINT, f.now);
  REQUIRE(Text(f.supervisor.OnTick(f.now + absl::Minutes(1))).empty());
}

TEST_CASE("a controller that crashes or asks for it is restarted, workers stay") {
  Fixture f;
  REQUIRE(f.Crash(kController) == "spawn controller");
  REQUIRE(f.Exit(kController, 75).empty());
  REQUIRE(Text(f.supervisor.OnTick(f.now + absl::Seconds(1))) == "spawn controller");
  REQUIRE(f.Crash(kController) == kTerminateWorkers);
}

TEST_CASE("a controller's own failure is final and its code is passed on") {
  Fixture f;
  REQUIRE(f.Exit(kController, 70) == kTerminateWorkers);
  f.AllWorkersExit();
  REQUIRE(f.Exit(kRollout1, 0) == "finish 70");
}

TEST_CASE("a worker that cannot run at all is not restarted") {
  for (const int code : {64, 127}) {
    Fixture f;
    REQUIRE(f.Exit(kRollout1, code) == "terminate controller");
    REQUIRE(f.Exit(kController, 0) ==
            "terminate trainer 0, terminate trainer 1, terminate rollout 0");
    f.Exit(kTrainer0, 0);
    f.Exit(kTrainer1, 0);
    REQUIRE(f.Exit(kRollout0, 0) == "finish 64");
  }
}

TEST_CASE("a worker that is let go early is missed only when the controller keeps running") {
  Fixture f;
  REQUIRE(f.Exit(kTrainer0, 0).empty());
  REQUIRE(f.supervisor.NextDeadline() == f.now + absl::Seconds(10));
  REQUIRE(Text(f.supervisor.OnTick(f.now + absl::Seconds(9))).empty());
  const Actions actions = f.supervisor.OnTick(f.now + absl::Seconds(10));
  REQUIRE(Text(actions) == "spawn trainer 0");
  REQUIRE(Said(actions) == "trainer 0 exited while the run continues; restart 1 of 2\n");
}

TEST_CASE("a worker that keeps leaving uses up the restarts") {
  Fixture f({.processes = OnePair(), .max_restarts = 1});
  f.Exit(kTrainer0, 0);
  REQUIRE(Text(f.supervisor.OnTick(f.now + absl::Seconds(10))) == "spawn trainer 0");
  f.Exit(kTrainer0, 0);
  REQUIRE(Text(f.supervisor.OnTick(f.now + absl::Seconds(10))) == "terminate controller");
}

TEST_CASE("a stop request ends the controller, then the workers, and nothing is restarted") {
  Fixture f;
  REQUIRE(Text(f.supervisor.OnStopRequest(SIGINT, f.now)) == "terminate controller");
  REQUIRE(f.Crash(kTrainer0).empty());
  REQUIRE(f.Exit(kController, 0) ==
          "terminate trainer 1, terminate rollout 0, terminate rollout 1");
  f.Exit(kTrainer1, 0);
  f.Exit(kRollout0, 0);
  REQUIRE(f.Exit(kRollout1, 0) == "finish 130");
}

TEST_CASE("after a stop request the controller has time for a long call, and its loss is said") {
  Fixture f({.processes = OnePair(), .max_restarts = 2});
  f.supervisor.OnStopRequest(SIGINT, f.now);
  REQUIRE(f.supervisor.NextDeadline() == f.now + absl::Minutes(10));
  REQUIRE(Text(f.supervisor.OnTick(f.now + absl::Minutes(9))).empty());
  const Actions actions = f.supervisor.OnTick(f.now + absl::Minutes(10));
  REQUIRE(Text(actions) == "kill controller, kill trainer 0, kill rollout 0");
  REQUIRE(Said(actions).find("Progress since the last checkpoint is lost") != std::string::npos);
}

TEST_CASE("a second stop request kills at once") {
  Fixture f({.processes = OnePair(), .max_restarts = 2});
  f.supervisor.OnStopRequest(SIGTERM, f.now);
  REQUIRE(Text(f.supervisor.OnStopRequest(SIGTERM, f.now)) ==
          "kill controller, kill trainer 0, kill rollout 0");
  f.Crash(kController);
  f.Crash(kTrainer0);
  REQUIRE(f.Crash(kRollout0) == "finish 143");
}

TEST_CASE("a stop request while a restart is pending does not restart") {
  Fixture f({.processes = OnePair(), .max_restarts = 5});
  f.Crash(kController);
  REQUIRE(f.Crash(kController).empty());
  REQUIRE(Text(f.supervisor.OnStopRequest(SIGINT, f.now)) ==
          "terminate trainer 0, terminate rollout 0");
  f.Exit(kTrainer0, 0);
  REQUIRE(f.Exit(kRollout0, 0) == "finish 130");
  REQUIRE(Text(f.supervisor.OnTick(f.now + absl::Hours(1))).empty());
}

SupervisorOptions AgentOptions() {
  return {.processes = {kTrainer1, kRollout1}, .max_restarts = 2};
}

TEST_CASE("an agent starts its workers alone, and restarts one that dies") {
  Fixture f(AgentOptions());
  REQUIRE(f.started == "spawn trainer 1, spawn rollout 1");
  REQUIRE(f.supervisor.NextDeadline() == Instant::InfiniteFuture());
  REQUIRE(f.Crash(kTrainer1) == "spawn trainer 1");
  REQUIRE(f.Exit(kTrainer1, 75).empty());
  REQUIRE(f.supervisor.NextDeadline() == f.now + absl::Seconds(1));
  REQUIRE(Text(f.supervisor.OnTick(f.supervisor.NextDeadline())) == "spawn trainer 1");
}

TEST_CASE("an agent reports what it cannot mend, and ends with that code when the run is over") {
  Fixture f(AgentOptions());
  const Actions actions = f.supervisor.OnExit(kRollout1, {.code = 64}, f.now);
  REQUIRE(Text(actions) == "report rollout 1 64");
  REQUIRE(Said(actions) == "rollout 1 cannot run: exit code 64\n");
  REQUIRE(f.Crash(kTrainer1).empty());  // nothing is restarted meanwhile
  REQUIRE_FALSE(f.supervisor.done());
  const Actions over = f.supervisor.OnRunOver(0, "The run is over", f.now);
  REQUIRE(Text(over) == "finish 64");
  REQUIRE(over.back().text == "rollout 1 cannot run");
}

TEST_CASE("an agent whose report nobody answers stops its workers after the grace period") {
  Fixture f({.processes = {kTrainer1, kRollout1}, .max_restarts = 0});
  REQUIRE(f.Crash(kRollout1) == "report rollout 1 70");
  REQUIRE(f.supervisor.NextDeadline() == f.now + absl::Seconds(20));
  f.now += absl::Seconds(20);
  REQUIRE(Text(f.supervisor.OnTick(f.now)) == "terminate trainer 1");
  REQUIRE(Text(f.supervisor.OnTick(f.now + absl::Seconds(20))) == "kill trainer 1");
  REQUIRE(f.Crash(kTrainer1) == "finish 70");
}

TEST_CASE("an agent's run that is over ends its workers, and those that stay are killed") {
  Fixture f(AgentOptions());
  REQUIRE(Text(f.supervisor.OnRunOver(0, "", f.now)) == "terminate trainer 1, terminate rollout 1");
  REQUIRE(f.Exit(kTrainer1, 0).empty());
  REQUIRE(Text(f.supervisor.OnTick(f.now + absl::Seconds(20))) == "kill rollout 1");
  REQUIRE(f.Crash(kRollout1) == "finish 0");
}

TEST_CASE("an agent that has lost its controller ends with that code") {
  Fixture f(AgentOptions());
  f.supervisor.OnRunOver(69, "The controller is lost", f.now);
  f.Exit(kTrainer1, 0);
  REQUIRE(f.Exit(kRollout1, 0) == "finish 69");
}

TEST_CASE("an agent's worker that left is missed only when the controller still says so later") {
  Fixture f(AgentOptions());
  REQUIRE(f.Exit(kTrainer1, 0).empty());
  REQUIRE(f.supervisor.NextDeadline() == Instant::InfiniteFuture());
  f.now += absl::Seconds(9);
  f.supervisor.OnAlive(f.now);
  REQUIRE(Text(f.supervisor.OnTick(f.now)).empty());
  f.now += absl::Seconds(2);
  REQUIRE(Text(f.supervisor.OnTick(f.now)).empty());  // the controller has not spoken since
  f.supervisor.OnAlive(f.now);
  const Actions actions = f.supervisor.OnTick(f.now);
  REQUIRE(Text(actions) == "spawn trainer 1");
  REQUIRE(Said(actions) == "trainer 1 exited while the run continues; restart 1 of 2\n");
}

TEST_CASE("an agent is done with 0 when all workers were let go and the controller is silent") {
  Fixture f(AgentOptions());
  f.Exit(kTrainer1, 0);
  f.Exit(kRollout1, 0);
  REQUIRE(f.supervisor.NextDeadline() == f.now + absl::Seconds(10));
  f.now += absl::Seconds(5);
  f.supervisor.OnAlive(f.now);  // it waits for workers of other hosts
  REQUIRE(f.supervisor.NextDeadline() == f.now + absl::Seconds(10));
  REQUIRE(Text(f.supervisor.OnTick(f.now + absl::Seconds(9))).empty());
  REQUIRE(Text(f.supervisor.OnTick(f.now + absl::Seconds(10))) == "finish 0");
}

TEST_CASE("a worker that lost the controller is started again when the agent hears from it") {
  Fixture f(AgentOptions());
  REQUIRE(f.Exit(kTrainer1, 69).empty());
  REQUIRE(f.supervisor.NextDeadline() == Instant::InfiniteFuture());
  f.now += absl::Seconds(60);
  REQUIRE(Text(f.supervisor.OnTick(f.now)).empty());
  f.supervisor.OnAlive(f.now);
  const Actions actions = f.supervisor.OnTick(f.now);
  REQUIRE(Text(actions) == "spawn trainer 1");
  REQUIRE(Said(actions) == "trainer 1 had lost the controller; restart 1 of 2\n");
  // If the agent loses it as well, that is the reason for its end.
  f.Exit(kTrainer1, 69);
  f.Exit(kRollout1, 69);
  REQUIRE(Text(f.supervisor.OnRunOver(69, "lost", f.now)) == "finish 69");
}

TEST_CASE("a controller that agent and workers have lost costs no restarts") {
  Fixture f(AgentOptions());
  f.supervisor.OnAlive(f.now);
  for (int loss = 0; loss < 5; ++loss) {
    f.now += absl::Seconds(120);
    REQUIRE(f.Exit(kTrainer1, 69).empty());
    REQUIRE(f.Exit(kRollout1, 69).empty());
    f.now += absl::Seconds(1);
    f.supervisor.OnAlive(f.now);
    const Actions actions = f.supervisor.OnTick(f.now);
    REQUIRE(Text(actions) == "spawn trainer 1, spawn rollout 1");
    REQUIRE(Said(actions).starts_with("trainer 1 had lost the controller, as this agent had"));
  }
  const Actions died = f.supervisor.OnExit(kTrainer1, {.signal = SIGKILL}, f.now);
  REQUIRE(Said(died) == "trainer 1 died: signal 9 (Killed); restart 1 of 2\n");
}

TEST_CASE("an agent's orders start new processes and end those that are gone") {
  Fixture f({.max_restarts = 1});
  REQUIRE(f.started.empty());
  REQUIRE(Text(f.supervisor.OnTick(f.now + absl::Hours(1))).empty());  // it waits for orders
  REQUIRE(Text(f.supervisor.OnOrders({kTrainer0, kRollout0}, f.now)) ==
          "spawn trainer 0, spawn rollout 0");
  REQUIRE(Text(f.supervisor.OnOrders({kTrainer0, kTrainer1}, f.now)) ==
          "terminate rollout 0, spawn trainer 1");
  REQUIRE(Text(f.supervisor.OnOrders({kTrainer0, kTrainer1}, f.now)).empty());
  REQUIRE(f.supervisor.NextDeadline() == f.now + absl::Seconds(20));
  f.now += absl::Seconds(20);
  REQUIRE(Text(f.supervisor.OnTick(f.now)) == "kill rollout 0");
  REQUIRE(Text(f.supervisor.OnTick(f.now)).empty());
  REQUIRE(f.Crash(kRollout0).empty());  // and it is not restarted
  REQUIRE(f.Crash(kTrainer0) == "spawn trainer 0");
}

TEST_CASE("a process that is ordered again while it ends is started again, at no cost") {
  Fixture f({.processes = {kTrainer0}, .max_restarts = 0});
  REQUIRE(Text(f.supervisor.OnOrders({}, f.now)) == "terminate trainer 0");
  REQUIRE(Text(f.supervisor.OnOrders({kTrainer0}, f.now)).empty());
  REQUIRE(f.Exit(kTrainer0, 0) == "spawn trainer 0");
  REQUIRE(f.supervisor.NextDeadline() == Instant::InfiniteFuture());
}

TEST_CASE("an agent that is stopped ends its workers, and kills them at a second request") {
  Fixture f(AgentOptions());
  REQUIRE(Text(f.supervisor.OnStopRequest(SIGTERM, f.now)) ==
          "terminate trainer 1, terminate rollout 1");
  REQUIRE(Text(f.supervisor.OnStopRequest(SIGTERM, f.now)) == "kill trainer 1, kill rollout 1");
  f.Crash(kTrainer1);
  REQUIRE(f.Crash(kRollout1) == "finish 143");
}

TEST_CASE("a launcher's agents are started after its controller and restarted like workers") {
  const ProcessId agent0{Role::kAgent, 0};
  const ProcessId agent1{Role::kAgent, 1};
  Fixture f({.processes = {kController, agent0, agent1}, .max_restarts = 1});
  REQUIRE(f.started == "spawn controller, spawn agent 0, spawn agent 1");
  REQUIRE(f.Crash(agent1) == "spawn agent 1");
  REQUIRE(f.Exit(agent0, 64) == "terminate controller");
  // It is told by the controller that the run is over.
  REQUIRE(f.Exit(kController, 0).empty());
  REQUIRE(f.Exit(agent1, 0) == "finish 64");
}

TEST_CASE("an agent that has not ended some time after the controller is stopped, then killed") {
  const ProcessId agent0{Role::kAgent, 0};
  Fixture f({.processes = {kController, agent0}});
  REQUIRE(f.Exit(kController, 0).empty());
  f.now = f.supervisor.NextDeadline();
  REQUIRE(f.now == Instant(absl::Seconds(1010)));
  REQUIRE(Text(f.supervisor.OnTick(f.now)) == "terminate agent 0");
  f.now = f.supervisor.NextDeadline();
  REQUIRE(f.now == Instant(absl::Seconds(1030)));
  REQUIRE(Text(f.supervisor.OnTick(f.now)) == "kill agent 0");
  REQUIRE(f.Crash(agent0) == "finish 0");
}

TEST_CASE("a run whose agents stay lost asks for a start elsewhere") {
  const ProcessId agent0{Role::kAgent, 0};
  Fixture f({.processes = {kController, agent0}, .max_restarts = 0});
  REQUIRE(f.Crash(agent0) == "terminate controller");
  REQUIRE(f.Exit(kController, 0) == "finish 75");
}

TEST_CASE("a run that may go on without some of its agents does so as long as one runs") {
  const ProcessId agent0{Role::kAgent, 0};
  const ProcessId agent1{Role::kAgent, 1};
  Fixture f({.processes = {kController, agent0, agent1},
             .max_restarts = 1,
             .agents_may_stay_away = true});
  REQUIRE(f.Crash(agent1) == "spawn agent 1");
  REQUIRE(f.Crash(agent1).empty());
  REQUIRE(f.supervisor.running());
  // Later it is tried again; what its node misses then ends nothing either.
  REQUIRE(f.supervisor.NextDeadline() == f.now + absl::Hours(1));
  f.now += absl::Hours(1);
  REQUIRE(Text(f.supervisor.OnTick(f.now)) == "spawn agent 1");
  REQUIRE(f.Exit(agent1, 64).empty());
  REQUIRE(f.Crash(agent0) == "terminate controller");
  REQUIRE(f.Exit(kController, 0) == "finish 75");
}

}  // namespace
}  // namespace tandem
