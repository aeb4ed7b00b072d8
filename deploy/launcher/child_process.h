// Starts a child process that cannot outlive the launcher. Linux only.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <sys/types.h>

namespace tandem {

struct ChildOptions {
  std::vector<std::string> argv;           // argv[0] is the path of the program
  std::map<std::string, std::string> env;  // over the launcher's own environment
  std::string log_path;                    // receives stderr, and stdout unless `inherit_stdout`
  bool inherit_stdout =
      false;  // so that the controller's progress shows on the launcher's terminal
};

// Forks and executes. The child leads its own process group, so that Ctrl-C on the terminal reaches
// only the launcher. The kernel kills it when the calling thread dies. It reads from /dev/null and
// starts with no signal blocked. If the program cannot be executed, the child logs the reason and
// exits with 127. Internal: the log cannot be opened or fork failed.
absl::StatusOr<pid_t> SpawnChild(const ChildOptions& options);

// Returns the last `lines` lines of a file, of what follows its first `begin` bytes; "" if there
// are none.
std::string LastLines(const std::string& path, int lines, int64_t begin = 0);

}  // namespace tandem
