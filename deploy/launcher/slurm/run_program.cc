#include "deploy/launcher/slurm/run_program.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/status.h"
#include "common/process/local_socket.h"

namespace tandem {
namespace {

// A child of posix_spawn that writes into a pipe and has no signal blocked.
class SpawnSettings {
 public:
  explicit SpawnSettings(int output) {
    posix_spawn_file_actions_init(&files_);
    posix_spawn_file_actions_addopen(&files_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files_, output, STDOUT_FILENO);
    posix_spawnattr_init(&attributes_);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&files_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  int Spawn(pid_t* pid, char* const* argv) {
    return posix_spawn(pid, argv[0], &files_, &attributes_, argv, environ);
  }

 private:
  posix_spawn_file_actions_t files_;
  posix_spawnattr_t attributes_;
};

std::string ReadToEnd(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t bytes; (bytes = read(fd, buffer, sizeof(buffer))) != 0;) {
    if (bytes > 0) {
      text.append(buffer, static_cast<size_t>(bytes));
    } else if (errno != EINTR) {
      break;
    }
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> FindProgram(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string program = folder + "/" + name;
    if (!folder.empty() && access(program.c_str(), X_OK) == 0) return program;
  }
  return MakeStatus(absl::StatusCode::kNotFound,
                    "there is no program {} in the folders of PATH ({}): add the one where Slurm's "
                    "commands are (often /opt/slurm/bin)",
                    name, path == nullptr ? "which is not set" : path);
}

absl::StatusOr<std::string> RunProgram(const std::vector<std::string>& argv) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Internal("no pipe: {}", std::strerror(errno));
  const UniqueFd output(ends[0]);
  UniqueFd input(ends[1]);
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  pid_t pid = 0;
  const int error = SpawnSettings(input.get()).Spawn(&pid, words.data());
  if (error != 0) return Internal("cannot run {}: {}", argv[0], std::strerror(error));
  input = UniqueFd();
  std::string text = ReadToEnd(output.get());
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return text;
  std::string command;
  for (const std::string& word : argv) command += (command.empty() ? "" : " ") + word;
  return WIFEXITED(status) ? Internal("{} ended with exit code {}", command, WEXITSTATUS(status))
                           : Internal("{} ended by signal {}", command, WTERMSIG(status));
}

}  // namespace tandem
