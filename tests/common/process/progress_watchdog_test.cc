#include "common/process/progress_watchdog.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
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
#include "tests/support/own_progress.h"
#include "tests/support/patience.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

std::string FileText(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

using testing::OwnProgress;
using testing::OwnThread;

bool IsListed(int64_t thread) {
  const std::vector<ThreadProgress> all = CurrentProgress();
  return std::any_of(all.begin(), all.end(), [thread](const ThreadProgress& progress) {
    return progress.thread == thread;
  });
}

TEST_CASE("A thread stands still only where work is due and nothing moves", "[progress]") {
  StandstillMeter meter;
  Instant now(absl::Seconds(100));
  const auto look = [&](int64_t moves, bool due) -> std::optional<absl::Duration> {
    now += absl::Seconds(6);
    const auto still = meter.Look({{.thread = 1, .moves = moves, .work_due = due}}, now);
    return still ? std::optional(still->time) : std::nullopt;
  };
  REQUIRE(look(1, true) == absl::ZeroDuration());
  REQUIRE(look(1, true) == absl::Seconds(6));
  REQUIRE(look(2, true) == absl::ZeroDuration());
  REQUIRE(look(2, true) == absl::Seconds(6));
  REQUIRE(look(2, true) == absl::Seconds(12));
  // An engine that waits for a peer, or has nothing to do, may do so for ever.
  for (int i = 0; i < 100; ++i) REQUIRE_FALSE(look(2, false));
  REQUIRE(look(2, true) == absl::Seconds(6));  // since it had nothing to do
  REQUIRE(look(2, true) == absl::Seconds(12));
}

TEST_CASE("A thread that moves does not hide another that stands still", "[progress]") {
  StandstillMeter meter;
  Instant now(absl::Seconds(100));
  std::optional<Standstill> still;
  for (int64_t i = 0; i < 4; ++i) {
    now += absl::Seconds(4);
    still = meter.Look({{.thread = 1, .moves = i, .work_due = true, .activity = "saving"},
                        {.thread = 2, .moves = 7, .work_due = true, .activity = "sending"}},
                       now);
    REQUIRE(still->time == i * absl::Seconds(4));
  }
  REQUIRE(still->progress.activity == "sending");
  // A thread that has ended stands still no more.
  now += absl::Seconds(4);
  REQUIRE(meter.Look({{.thread = 1, .moves = 9, .work_due = true}}, now)->time ==
          absl::ZeroDuration());
}

TEST_CASE("Steps name what a thread is at, also after an inner step has ended", "[progress]") {
  REQUIRE_FALSE(OwnProgress().work_due);
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
  int64_t other = 0, moves = 0;
  bool listed = false;
  NamedThread worker("worker", [&] {
    const WorkStep own("collective");
    other = OwnThread();
    listed = IsListed(other);
    moves = MovesOfProcess();
  });
  worker.Join();
  REQUIRE(listed);
  REQUIRE_FALSE(IsListed(other));
  REQUIRE(IsListed(OwnThread()));
  REQUIRE(moves > before.moves);
  REQUIRE(MovesOfProcess() >= moves);  // the thread is gone, and what it did still counts
}

TEST_CASE("A wait that began before a thread's first step leaves no trace in its count",
          "[progress]") {
  bool in_step = false, in_wait = true, in_next_step = false;
  NamedThread worker("worker", [&] {
    {
      const OutsideWait wait;
      const WorkStep first("first step");
      in_step = OwnProgress().work_due;
    }
    const WorkStep second("second step");
    in_next_step = OwnProgress().work_due;
    const OutsideWait wait;
    in_wait = OwnProgress().work_due;
  });
  worker.Join();
  REQUIRE(in_step);
  REQUIRE(in_next_step);
  REQUIRE_FALSE(in_wait);
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

TEST_CASE("Threads that do not answer hold up the stacks for a limited time, and are named",
          "[progress]") {
  const testing::TempDir dir;
  const std::string path = dir.path() / "stacks";
  std::atomic<int> deaf{0};
  std::atomic<bool> end{false};
  const auto be_deaf = [&] {
    sigset_t signals;
    sigfillset(&signals);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    ++deaf;
    end.wait(false);
  };
  constexpr int kThreads = 4;  // one more than a third of the patience goes into the whole
  std::vector<std::unique_ptr<NamedThread>> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.push_back(std::make_unique<NamedThread>("deaf " + std::to_string(i), be_deaf));
  }
  testing::WaitUntil("the threads", [&] { return deaf == kThreads; });
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  WriteThreadStacks(fd, absl::Milliseconds(30));
  close(fd);
  end = true;
  end.notify_all();
  for (const auto& thread : threads) thread->Join();
  const std::string text = FileText(path);
  INFO(text);
  for (int i = 0; i < kThreads; ++i) {
    REQUIRE(text.find("thread deaf " + std::to_string(i) + " (") != std::string::npos);
  }
  REQUIRE(text.find("not asked") != std::string::npos);
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
