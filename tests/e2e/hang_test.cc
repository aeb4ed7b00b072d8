// A process that is alive and does nothing: the controller misses a worker's heartbeats, the
// launcher a controller's signs of life; it is killed, and the run goes on as after any other
// death.
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include <absl/time/clock.h>
#include <catch2/catch.hpp>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/process/local_socket.h"
#include "tests/e2e/recovery.h"

namespace tandem::testing {
namespace {

void RequireRestart(const std::string& role, int rank, const std::string& point, int nth) {
  ClusterRig rig({.config = {{"cluster.heartbeat_timeout_seconds", "2"}}});
  rig.SetPairs(2);
  rig.SetFault(role, rank, point, nth, "stop");
  const int code = rig.Launch().Wait();
  const std::string said = rig.Log("launcher");
  INFO(said << rig.Log("controller"));
  REQUIRE(code == 0);
  REQUIRE(rig.FaultFired());
  REQUIRE(said.find(role + " " + std::to_string(rank) + " hangs; killed it") != std::string::npos);
  REQUIRE(said.find("; restart ") != std::string::npos);
  REQUIRE(rig.LeftBehind() == "");
  const Outcome outcome = OutcomeOf(rig, 3);
  REQUIRE(outcome.metrics == Undisturbed().metrics);
  REQUIRE(outcome.weights == Undisturbed().weights);
}

TEST_CASE("a rollout that hangs while it generates is killed and replaced") {
  RequireRestart("rollout", 1, "generate", 12);
}

TEST_CASE("a trainer that hangs while it trains is killed and replaced") {
  RequireRestart("trainer", 1, "train", 2);
}

// An engine that stands still, in a process that goes on sending heartbeats.
void RequireStuckEngineReplaced(const std::string& role, const std::string& point, int nth) {
  ClusterRig rig({.config = {{"cluster.progress_timeout_seconds", "10"}}});
  rig.SetPairs(2);
  rig.SetFault(role, 1, point, nth, "hang");
  const int code = rig.Launch().Wait();
  const std::string said = rig.Log("launcher");
  INFO(said << rig.Log(role, 1));
  REQUIRE(code == 0);
  REQUIRE(rig.FaultFired());
  REQUIRE(said.find(role + " 1 died: exit code 70; restart ") != std::string::npos);
  const std::string log = rig.Log(role, 1);
  REQUIRE(log.find(role + " 1: no progress for ") != std::string::npos);
  REQUIRE(log.find("\nthread ") != std::string::npos);
  REQUIRE(rig.LeftBehind() == "");
  const Outcome outcome = OutcomeOf(rig, 3);
  REQUIRE(outcome.metrics == Undisturbed().metrics);
  REQUIRE(outcome.weights == Undisturbed().weights);
}

TEST_CASE("a rollout whose engine stands still tells where, ends and is replaced") {
  RequireStuckEngineReplaced("rollout", "generate", 12);
}

TEST_CASE("a trainer whose engine stands still in a layer tells where, ends and is replaced") {
  RequireStuckEngineReplaced("trainer", "layer", 5);
}

TEST_CASE("a trainer whose engine stands still in the optimizer tells where and is replaced") {
  RequireStuckEngineReplaced("trainer", "optimizer.window", 2);
}

TEST_CASE("a trainer that stands still while it sends weights tells the bucket and is replaced") {
  RequireStuckEngineReplaced("trainer", "sync.bucket", 2);
}

TEST_CASE("a rollout that stands still while it takes weights is named, and not its trainer") {
  RequireStuckEngineReplaced("rollout", "apply bucket", 2);
}

TEST_CASE("a trainer that stands still while it saves tells so and is replaced") {
  RequireStuckEngineReplaced("trainer", "save", 1);
}

// NOTIFY_SOCKET of the rig's controller, "" while none runs.
std::string NotifyName(const ClusterRig& rig) {
  for (const std::string& process : rig.Running()) {
    if (process.find("/tandem-controller ") == std::string::npos) continue;
    const std::string environment =
        '\0' + FileText("/proc/" + process.substr(0, process.find(' ')) + "/environ");
    const std::string_view key("\0NOTIFY_SOCKET=", 15);
    const size_t found = environment.find(key);
    if (found == std::string::npos) continue;
    const size_t begin = found + key.size();
    return environment.substr(begin, environment.find('\0', begin) - begin);
  }
  return "";
}

void SendSignOfLife(const std::string& notify_name) {
  const UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  notify_name.copy(to.sun_path, sizeof(to.sun_path) - 1);
  to.sun_path[0] = '\0';  // "@name" is an abstract one
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + notify_name.size());
  const std::string_view message = "WATCHDOG=1";
  sendto(fd.get(), message.data(), message.size(), 0, reinterpret_cast<const sockaddr*>(&to), size);
}

// The launcher's exit code. Gives signs of life in the controller's place until `hangs`, and again
// once the launcher has killed it: its watchdog counts from the hang alone, and not what a loaded
// machine takes to start a controller.
int WaitAlive(const ClusterRig& rig, TestProcess& launcher, const std::function<bool()>& hangs) {
  std::string notify_name;
  bool silent = false, killed = false;
  while (launcher.running()) {
    silent = silent || hangs();
    killed = killed || (silent && rig.Log("launcher").find("killing it") != std::string::npos);
    if (notify_name.empty()) notify_name = NotifyName(rig);
    if (!notify_name.empty() && (!silent || killed)) SendSignOfLife(notify_name);
    absl::SleepFor(absl::Milliseconds(20));
  }
  return launcher.Wait();
}

// `action` "stop": the process stands still; "hang": its train loop alone, while it goes on
// answering its workers' heartbeats and its users.
void RequireControllerReplaced(const std::string& action) {
  ClusterRig rig({.config = {{"cluster.watchdog_seconds", "6"}}});
  rig.SetPairs(2);
  rig.SetFault("controller", 0, "train", 2, action);
  const int code = WaitAlive(rig, rig.Launch(), [&] {
    // A train loop that hangs is noticed by its own process, which tells so and falls silent.
    if (action == "stop") return rig.FaultFired();
    return rig.Log("controller").find("the train loop has made no progress for") !=
           std::string::npos;
  });
  const std::string said = rig.Log("launcher");
  INFO(said << rig.Log("controller"));
  REQUIRE(code == 0);
  REQUIRE(rig.FaultFired());
  REQUIRE(said.find("The controller has given no sign of life for") != std::string::npos);
  REQUIRE(said.find("controller died: signal 9 (Killed); restart ") != std::string::npos);
  for (const char* worker : {"trainer", "rollout"}) {
    REQUIRE(said.find(std::string(worker) + " 0 died") == std::string::npos);
  }
  REQUIRE(rig.LeftBehind() == "");
  const Outcome outcome = OutcomeOf(rig, 3);
  REQUIRE(outcome.metrics == Undisturbed().metrics);
  REQUIRE(outcome.weights == Undisturbed().weights);
  if (action == "hang") {
    const std::string log = rig.Log("controller");
    REQUIRE(log.find("the train loop has made no progress for") != std::string::npos);
    REQUIRE(log.find(", in train;") != std::string::npos);
    REQUIRE(log.find("\nthread ") != std::string::npos);
  }
}

TEST_CASE("a controller that hangs is killed and replaced, and its workers stay") {
  RequireControllerReplaced("stop");
}

TEST_CASE("a controller whose train loop alone hangs is killed and replaced as well") {
  RequireControllerReplaced("hang");
}

}  // namespace
}  // namespace tandem::testing
