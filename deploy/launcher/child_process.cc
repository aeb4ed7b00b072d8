#include "deploy/launcher/child_process.h"

#include <cerrno>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/base/status.h"

namespace tandem {
namespace {

// Runs between fork and exec: only async-signal-safe calls.
[[noreturn]] void RunChild(
    char* const* argv, char* const* env, int log, int null, bool inherit_stdout, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // the parent died before prctl took effect
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  dup2(null, STDIN_FILENO);
  if (!inherit_stdout) dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execve(argv[0], argv, env);
  const char* reason = strerror(errno);
  for (const char* part : {"cannot run ", static_cast<const char*>(argv[0]), ": ", reason, "\n"}) {
    if (write(STDERR_FILENO, part, strlen(part)) < 0) break;
  }
  _exit(127);
}

// This process's variables, and `changes` over them, as "name=value".
std::vector<std::string> Environment(const std::map<std::string, std::string>& changes) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    if (!changes.contains(text.substr(0, text.find('=')))) variables.push_back(text);
  }
  for (const auto& [name, value] : changes) variables.push_back(name + "=" + value);
  return variables;
}

}  // namespace

absl::StatusOr<pid_t> SpawnChild(const ChildOptions& options) {
  const int log = open(options.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) return Internal("cannot open {}: {}", options.log_path, strerror(errno));
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  std::vector<char*> argv;
  for (const std::string& arg : options.argv) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  std::vector<std::string> variables = Environment(options.env);
  std::vector<char*> env;
  for (std::string& variable : variables) env.push_back(variable.data());
  env.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) RunChild(argv.data(), env.data(), log, null, options.inherit_stdout, parent);
  const int error = errno;
  close(log);
  close(null);
  if (pid < 0) return Internal("cannot start {}: {}", options.argv[0], strerror(error));
  setpgid(pid, pid);  // in both processes, so that the group exists when either continues
  return pid;
}

std::string LastLines(const std::string& path, int lines, int64_t begin) {
  std::ifstream file(path);
  std::error_code none;
  // A log that began anew has nothing of earlier launches.
  const auto bytes = std::filesystem::file_size(path, none);
  file.seekg(!none && static_cast<int64_t>(bytes) < begin ? 0 : begin);
  std::deque<std::string> last;
  for (std::string line; std::getline(file, line);) {
    last.push_back(line);
    if (static_cast<int>(last.size()) > lines) last.pop_front();
  }
  std::string text;
  for (const std::string& line : last) text += line + "\n";
  return text;
}

}  // namespace tandem
