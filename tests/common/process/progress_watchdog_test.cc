#include "common/process/progress_watchdog.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

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

// What the calling thread is at.
ThreadProgress OwnProgress() {
  const std::vector<ThreadProgress> all = CurrentProgress();
  REQUIRE(all.size() == 1);
  return all.front();
}

TEST_CASE("A thread stands still only where work is due and nothing moves", "[progress]") {
  StallDetector detector(absl::Seconds(10));
  Instant now(absl::Seconds(100));
  const auto look = [&](int64_t moves, bool due) -> std::optional<absl::Duration> {
    now += absl::Seconds(6);
    const auto stall = detector.Look({{.thread = 1, .moves = moves, .work_due = due}}, now);
    return stall ? std::optional(stall->time) : std::nullopt;
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

TEST_CASE("A thread that moves does not hide another that stands still", "[progress]") {
  StallDetector detector(absl::Seconds(10));
  Instant now(absl::Seconds(100));
  std::optional<Stall> stall;
  for (int64_t i = 0; i < 4; ++i) {
    now += absl::Seconds(4);
    stall = detector.Look({{.thread = 1, .moves = i, .work_due = true, .activity = "saving"},
                           {.thread = 2, .moves = 7, .work_due = true, .activity = "sending"}},
                          now);
    REQUIRE(stall.has_value() == (i == 3));
  }
  REQUIRE(stall->progress.activity == "sending");
  // A thread that has ended stands still no more.
  now += absl::Seconds(4);
  REQUIRE_FALSE(detector.Look({{.thread = 1, .moves = 9, .work_due = true}}, now));
}

TEST_CASE("Steps name what a thread is at, also after an inner step has ended", "[progress]") {
  REQUIRE(CurrentProgress().empty());
  {
    const WorkStep pass("forward pass");
    REQUIRE(OwnProgress().Text() == "in forward pass");
    {
      const WorkStep layer("layer", {"layer", 7});
      NoteActivity("attention");
      REQUIRE(OwnProgress().Text() == "in attention, layer 7");
    }
    REQUIRE(OwnProgress().Text() == "in forward pass");
    REQUIRE(OwnProgress().work_due);
  }
  REQUIRE_FALSE(OwnProgress().work_due);
}

TEST_CASE("A thread that waits for others has no work due, and has moved afterwards",
          "[progress]") {
  const WorkStep sync("weight sync");
  const int64_t before = OwnProgress().moves;
  {
    const OutsideWait rollout;
    const OutsideWait within;
    const WorkStep step("another step");
    REQUIRE_FALSE(OwnProgress().work_due);
  }
  REQUIRE(OwnProgress().work_due);
  REQUIRE(OwnProgress().moves > before);
}

TEST_CASE("What a thread without work notes counts for nobody", "[progress]") {
  const WorkStep sync("weight sync");
  const ThreadProgress before = OwnProgress();
  NamedThread helper("helper", [] {
    NoteActivity("something else");
    NoteProgress();
    const OutsideWait wait;
  });
  helper.Join();
  REQUIRE(OwnProgress().moves == before.moves);
  REQUIRE(OwnProgress().Text() == "in weight sync");
  NamedThread worker("worker", [] {
    const WorkStep own("collective");
    REQUIRE(CurrentProgress().size() == 2);
  });
  worker.Join();
  REQUIRE(CurrentProgress().size() == 1);
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
    const WorkStep step("attention", {"layer", 7});
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
