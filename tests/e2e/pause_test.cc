// Processes that are stopped for a while and go on: neither they nor their peers are lost.
#include <csignal>

#include <absl/time/clock.h>
#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"

namespace tandem::testing {
namespace {

// Longer than a worker may be silent, and than any window of the config below.
constexpr absl::Duration kPause = absl::Seconds(6);

const RigOptions kShortWindows{
    .config = {{"cluster.heartbeat_timeout_seconds", "3"}, {"cluster.heartbeat_seconds", "0.5"}}};

// Sends `signal` to the processes of `rig` whose command line has `program` in it.
void Signal(const ClusterRig& rig, const std::string& program, int signal) {
  for (const std::string& process : rig.Running()) {
    if (process.find(program) != std::string::npos) kill(std::stoi(process), signal);
  }
}

// Stops the controller at its second `point`, and with it all processes with `others` in their
// command line, for kPause; then requires that nobody was lost and no step was repeated.
void RequireNothingLost(const std::string& point, const std::string& others) {
  ClusterRig rig(kShortWindows);
  rig.SetPairs(2);
  rig.SetFault("controller", 0, point, 2, "stop");
  TestProcess& launcher = rig.Launch();
  rig.WaitForFault("the controller's stop", launcher);
  Signal(rig, others, SIGSTOP);
  absl::SleepFor(kPause);
  Signal(rig, "tandem-", SIGCONT);
  const int code = launcher.Wait();
  const std::string said = rig.Log("launcher") + rig.Log("controller");
  INFO(said);
  REQUIRE(code == 0);
  REQUIRE(said.find("was paused for") != std::string::npos);
  for (const char* loss : {"restart 1 of", "is lost", "lost", "hangs"}) {
    INFO(loss);
    REQUIRE(said.find(loss) == std::string::npos);
  }
  REQUIRE(rig.LeftBehind() == "");
  const Outcome outcome = OutcomeOf(rig, 3);
  REQUIRE(outcome.metrics == Undisturbed().metrics);
  REQUIRE(outcome.weights == Undisturbed().weights);
}

TEST_CASE("a controller that was stopped loses no worker and repeats no step") {
  RequireNothingLost("train", "tandem-controller");
}

TEST_CASE("a run that was stopped as a whole goes on as if nothing had been") {
  RequireNothingLost("generate", "tandem-");
}

TEST_CASE("a run whose workers were stopped with their controller in a sync goes on") {
  RequireNothingLost("sync", "tandem-");
}

}  // namespace
}  // namespace tandem::testing
