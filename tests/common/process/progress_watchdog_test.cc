#include "common/process/progress_watchdog.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/process/exit_code.h"
#include "common/process/thread_stacks.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

std::string FileText(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("An engine stands still only where work is due and nothing moves", "[progress]") {
  StallDetector detector(absl::Seconds(10));
  Instant now(absl::Seconds(100));
  const auto look = [&](int64_t steps, bool due) {
    now += absl::Seconds(6);
    return detector.Look({.steps = steps, .work_due = due}, now);
  };
  REQUIRE_FALSE(look(1, true));
  REQUIRE_FALSE(look(1, true));
  REQUIRE_FALSE(look(2, true));
  REQUIRE_FALSE(look(2, true));
  REQUIRE(look(2, true) == absl::Seconds(12));
  // An engine that waits for a peer, or has nothing to do, may do so for ever.
  for (int i = 0; i < 100; ++i) REQUIRE_FALSE(look(2, false));
  REQUIRE_FALSE(look(2, true));
  REQUIRE(look(2, true) == absl::Seconds(12));
}

TEST_CASE("Steps name what the engine is at, also after an inner step has ended", "[progress]") {
  REQUIRE_FALSE(CurrentProgress().work_due);
  {
    const WorkStep pass("forward pass");
    REQUIRE(CurrentProgress().Text() == "in forward pass");
    {
      const WorkStep layer("layer", 7);
      NoteActivity("attention");
      REQUIRE(CurrentProgress().Text() == "in attention, layer 7");
    }
    REQUIRE(CurrentProgress().Text() == "in forward pass");
    REQUIRE(CurrentProgress().work_due);
  }
  REQUIRE_FALSE(CurrentProgress().work_due);
}

TEST_CASE("The stacks of all threads have their names and frames", "[progress]") {
  const testing::TempDir dir;
  const std::string path = dir.path() / "stacks";
  int end[2];
  REQUIRE(pipe(end) == 0);
  NamedThread stuck("stuck engine", [&] {
    // poll, as ThreadSanitizer lets signals through while a thread is in it.
    pollfd closed{.fd = end[0], .events = POLLIN};
    while (poll(&closed, 1, -1) <= 0) {
    }
  });
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  // The thread gets its name first thing.
  while (FileText(path).find("stuck engine") == std::string::npos) {
    REQUIRE(ftruncate(fd, 0) == 0);
    REQUIRE(lseek(fd, 0, SEEK_SET) == 0);
    WriteThreadStacks(fd);
  }
  close(fd);
  close(end[1]);
  stuck.Join();
  close(end[0]);
  const std::string text = FileText(path);
  const std::string own = text.substr(text.find("stuck engine"));
  INFO(text);
  REQUIRE(own.find("(+0x") != std::string::npos);
}

TEST_CASE("A process whose engine stands still ends with its name, place and stacks",
          "[progress]") {
  const testing::TempDir dir;
  const std::string path = dir.path() / "err";
  const pid_t child = fork();
  if (child == 0) {
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    const ProgressWatchdog watchdog("rollout 1", absl::Milliseconds(100));
    const WorkStep step("attention", 7);
    while (true) pause();
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  INFO(FileText(path));
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == kExitInternal);
  const std::string said = FileText(path);
  REQUIRE(said.find("rollout 1: no progress for ") != std::string::npos);
  REQUIRE(said.find(", in attention, layer 7 (") != std::string::npos);
  REQUIRE(said.find("thread ") != std::string::npos);
}

}  // namespace
}  // namespace tandem
