#include "common/process/thread_stacks.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include <absl/time/clock.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/clock.h"

namespace tandem {
namespace {

constexpr int kSignal = SIGURG;  // ignored by default, so that a late one does no harm
constexpr int kMaxFrames = 64;

std::atomic<int> asked_fd{-1};
std::atomic<bool> answered{false};

// Runs on the thread whose stack is asked for.
void WriteOwnStack(int) {
  const int fd = asked_fd.exchange(-1);
  if (fd < 0) return;
  const int error = errno;
  void* frames[kMaxFrames];
  backtrace_symbols_fd(frames, backtrace(frames, kMaxFrames), fd);
  errno = error;
  answered = true;
}

void Write(int fd, const std::string& text) { (void)!write(fd, text.data(), text.size()); }

std::string NameOf(const std::string& thread) {
  std::ifstream file("/proc/self/task/" + thread + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

}  // namespace

void WriteThreadStacks(int fd, absl::Duration patience) {
  // The first call of backtrace loads a library, which a signal handler must not.
  void* frame = nullptr;
  backtrace(&frame, 1);
  struct sigaction action {};
  action.sa_handler = WriteOwnStack;
  action.sa_flags = SA_RESTART;
  sigaction(kSignal, &action, nullptr);
  const Instant end = RealClock().Now() + patience;
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    const std::string thread = task.path().filename();
    const auto id = static_cast<pid_t>(std::stol(thread));
    if (id == static_cast<pid_t>(syscall(SYS_gettid))) continue;
    Write(fd, fmt::format("thread {} ({}):\n", NameOf(thread), id));
    const Instant now = RealClock().Now();
    if (now >= end) {
      Write(fd, "  not asked: too many threads did not answer\n");
      continue;
    }
    answered = false;
    asked_fd = fd;
    if (syscall(SYS_tgkill, getpid(), id, kSignal) != 0) {
      asked_fd = -1;
      continue;  // it has ended
    }
    const Instant until = std::min(now + patience / 3, end);
    while (!answered && RealClock().Now() < until) absl::SleepFor(absl::Milliseconds(1));
    if (!answered && asked_fd.exchange(-1) >= 0) {
      Write(fd, "  does not answer: it is stuck in the kernel\n");
    }
  }
}

}  // namespace tandem
