#include "tests/support/test_process.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"

namespace tandem::testing {
namespace {

constexpr size_t kShownOutput = 6000;  // characters

[[noreturn]] void RunChild(const ProcessOptions& options,
                           char* const* argv,
                           char* const* env,
                           pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
  if (!options.output.empty()) {
    const int output = open(options.output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
  }
  if (options.file_size_limit) {
    const auto bytes = static_cast<rlim_t>(*options.file_size_limit);
    const rlimit limit{bytes, bytes};
    setrlimit(RLIMIT_FSIZE, &limit);
    signal(SIGXFSZ, SIG_IGN);  // kept over exec: write fails with EFBIG instead
  }
  execve(argv[0], argv, env);
  _exit(127);
}

std::vector<std::string> Environment(const std::map<std::string, std::string>& more) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!more.contains(text.substr(0, text.find('=')))) entries.push_back(text);
  }
  for (const auto& [name, value] : more) entries.push_back(name + "=" + value);
  return entries;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Returns when the child has ended, without reaping it, or at the deadline.
void WaitForEnd(pid_t child, Instant deadline) {
  const int process = static_cast<int>(syscall(SYS_pidfd_open, child, 0));
  if (process < 0) throw std::runtime_error(std::string("pidfd_open: ") + strerror(errno));
  pollfd entry{.fd = process, .events = POLLIN, .revents = 0};
  int ready = 0;
  do {
    const absl::Duration left = std::max(absl::ZeroDuration(), deadline - RealClock().Now());
    ready = poll(&entry, 1, static_cast<int>(absl::ToInt64Milliseconds(left)));
  } while (ready < 0 && errno == EINTR);
  close(process);
}

}  // namespace

TestProcess::TestProcess(ProcessOptions options) : options_(std::move(options)) {
  std::vector<std::string> args = options_.argv, env = Environment(options_.env);
  const std::vector<char*> argv = Pointers(args), envp = Pointers(env);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ == 0) RunChild(options_, argv.data(), envp.data(), parent);
}

TestProcess::~TestProcess() {
  if (Poll()) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void TestProcess::Signal(int signal) const {
  if (!ended_) kill(pid_, signal);
}

std::optional<int> TestProcess::Poll() {
  int status = 0;
  if (!ended_ && waitpid(pid_, &status, WNOHANG) == pid_) {
    ended_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  return ended_;
}

int TestProcess::Wait(absl::Duration patience) {
  if (!Poll()) WaitForEnd(pid_, RealClock().Now() + patience);
  if (!Poll()) {
    const std::string output = Output();
    throw std::runtime_error(
        options_.argv[0] + " does not end. Its output ends:\n" +
        output.substr(output.size() > kShownOutput ? output.size() - kShownOutput : 0));
  }
  return *ended_;
}

std::string TestProcess::Output() const { return FileText(options_.output); }

std::string FileText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace tandem::testing
