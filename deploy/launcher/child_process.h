// Starting one child process so that it cannot outlive us. Linux.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <sys/types.h>

namespace tandem {

struct ChildOptions {
  std::vector<std::string> argv;  // argv[0] is the path of the program
  std::string log_path;           // stderr is appended here; stdout too unless `inherit_stdout`
  bool inherit_stdout = false;    // the progress of the controller goes to our terminal
};

// Forks and executes. The child leads a process group of its own (Ctrl-C on our terminal reaches
// only us), gets SIGKILL when the calling thread dies, reads from /dev/null, and starts with no
// signal blocked. A program that cannot be executed exits with 127 and says so in its log.
// Internal: the log or the fork failed.
absl::StatusOr<pid_t> SpawnChild(const ChildOptions& options);

// The last `lines` lines of a file after its first `begin` bytes, "" when there is none.
std::string LastLines(const std::string& path, int lines, int64_t begin = 0);

}  // namespace tandem
