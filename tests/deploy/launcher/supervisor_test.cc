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

struct Fixture {
  explicit Fixture(SupervisorOptions options = {.trainers = 2, .rollouts = 2, .max_restarts = 2})
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
  Fixture f({.trainers = 2, .rollouts = 2, .max_restarts = 1});
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
  Fixture f({.trainers = 2, .rollouts = 2, .max_restarts = 1, .restart_window = absl::Hours(1)});
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
  Fixture f({.trainers = 1, .rollouts = 1, .max_restarts = 2, .watchdog = absl::Seconds(120)});
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
  Fixture f({.trainers = 1, .rollouts = 1, .max_restarts = 2, .watchdog = absl::Seconds(120)});
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
    DateFixture f(
        {.trainers = 1, .rollouts = 1, .max_restarts = 2, .restart_window = absl::Hours(1)});
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
    DateFixture f(
        {.trainers = 1, .rollouts = 1, .max_restarts = 2, .watchdog = absl::Seconds(120)});
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
  Fixture f({.trainers = 1, .rollouts = 1, .max_restarts = 2, .watchdog = absl::Seconds(1)});
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
  Fixture f({.trainers = 1, .rollouts = 1, .max_restarts = 1});
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
  Fixture f({.trainers = 1, .rollouts = 1, .max_restarts = 2});
  f.supervisor.OnStopRequest(SIGINT, f.now);
  REQUIRE(f.supervisor.NextDeadline() == f.now + absl::Minutes(10));
  REQUIRE(Text(f.supervisor.OnTick(f.now + absl::Minutes(9))).empty());
  const Actions actions = f.supervisor.OnTick(f.now + absl::Minutes(10));
  REQUIRE(Text(actions) == "kill controller, kill trainer 0, kill rollout 0");
  REQUIRE(Said(actions).find("Progress since the last checkpoint is lost") != std::string::npos);
}

TEST_CASE("a second stop request kills at once") {
  Fixture f({.trainers = 1, .rollouts = 1, .max_restarts = 2});
  f.supervisor.OnStopRequest(SIGTERM, f.now);
  REQUIRE(Text(f.supervisor.OnStopRequest(SIGTERM, f.now)) ==
          "kill controller, kill trainer 0, kill rollout 0");
  f.Crash(kController);
  f.Crash(kTrainer0);
  REQUIRE(f.Crash(kRollout0) == "finish 143");
}

TEST_CASE("a stop request while a restart is pending does not restart") {
  Fixture f({.trainers = 1, .rollouts = 1, .max_restarts = 5});
  f.Crash(kController);
  REQUIRE(f.Crash(kController).empty());
  REQUIRE(Text(f.supervisor.OnStopRequest(SIGINT, f.now)) ==
          "terminate trainer 0, terminate rollout 0");
  f.Exit(kTrainer0, 0);
  REQUIRE(f.Exit(kRollout0, 0) == "finish 130");
  REQUIRE(Text(f.supervisor.OnTick(f.now + absl::Hours(1))).empty());
}

}  // namespace
}  // namespace tandem
