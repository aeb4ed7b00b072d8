#include "common/process/fault_injection.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/patience.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

// Reaches `point` `times` times in a child of the given role; returns its wait status.
int Reach(const std::string& fault, const char* point, int times) {
  const pid_t child = fork();
  if (child == 0) {
    // Catch2's handler, which the child inherits, would report its abort as a failed assertion.
    std::signal(SIGABRT, SIG_DFL);
    setenv("TANDEM_FAULT", fault.c_str(), 1);
    InitFaultPoints("trainer", 1);
    for (int i = 0; i < times; ++i) FaultPoint(point);
    _exit(0);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

TEST_CASE("a fault fires once, at the named point, visit, role and rank") {
  const testing::TempDir dir;
  const std::string marker = dir.path() / "fired";
  const std::string fault = "trainer:1:train:2:kill:" + marker;
  REQUIRE(Reach(fault, "train", 1) == 0);
  REQUIRE(Reach(fault, "save", 2) == 0);
  REQUIRE(Reach("rollout:1:train:2:kill:" + marker, "train", 2) == 0);
  REQUIRE(Reach("trainer:0:train:2:kill:" + marker, "train", 2) == 0);
  REQUIRE_FALSE(std::filesystem::exists(marker));
  const int status = Reach(fault, "train", 2);
  REQUIRE(WIFSIGNALED(status));
  REQUIRE(WTERMSIG(status) == SIGKILL);
  REQUIRE(std::filesystem::exists(marker));
  REQUIRE(Reach(fault, "train", 2) == 0);
}

TEST_CASE("an exit has code 1, and happens in one life of the process") {
  const testing::TempDir dir;
  const std::string fault = "trainer:1:save:1:exit:" + (dir.path() / "fired").string();
  const int status = Reach(fault, "save", 1);
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 1);
  REQUIRE(Reach(fault, "save", 1) == 0);
}

TEST_CASE("a process waits at a point until it may go on, and the next process does not wait") {
  const testing::TempDir dir;
  const std::string marker = dir.path() / "fired";
  const std::string fault = "trainer:1:save:2:wait:" + marker;
  const pid_t child = fork();
  if (child == 0) _exit(Reach(fault, "save", 2) == 0 ? 0 : 1);
  testing::WaitUntil("the point", [&] { return std::filesystem::exists(marker); });
  REQUIRE(waitpid(child, nullptr, WNOHANG) == 0);
  std::ofstream(marker + ".go").close();
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  std::filesystem::remove(marker + ".go");
  REQUIRE(Reach(fault, "save", 2) == 0);
}

TEST_CASE("a bit flips from its visit on, in one life of the process") {
  const testing::TempDir dir;
  const std::string fault = "rollout:2:weights:2:flip:" + (dir.path() / "fired").string();
  // At which visits of a child the bit is to flip, as a number of binary digits.
  const auto flips = [&](const char* point) {
    const pid_t child = fork();
    if (child == 0) {
      setenv("TANDEM_FAULT", fault.c_str(), 1);
      InitFaultPoints("rollout", 2);
      int seen = 0;
      for (int i = 0; i < 4; ++i) {
        FaultPoint(point);  // a flip is nothing to die of
        seen = 2 * seen + (FaultFlips(point) ? 1 : 0);
      }
      _exit(seen);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    return WEXITSTATUS(status);
  };
  REQUIRE(flips("logits") == 0b0000);
  REQUIRE(flips("weights") == 0b0111);
  REQUIRE(flips("weights") == 0b0000);
}

TEST_CASE("a fault that cannot be read ends the process") {
  const int status = Reach("trainer:1:train", "train", 1);
  REQUIRE(WIFSIGNALED(status));
  REQUIRE(WTERMSIG(status) == SIGABRT);
}

}  // namespace
}  // namespace tandem
