// A program started by a test: it cannot outlive the test, or the thread that started it, and its
// output is kept.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "tests/support/patience.h"

namespace tandem::testing {

struct ProcessOptions {
  std::vector<std::string> argv;           // argv[0] is the path of the program
  std::map<std::string, std::string> env;  // added to the environment of the test
  std::string output;  // file for stdout and stderr, appended; empty: they are the test's own
  std::optional<int64_t> file_size_limit;  // RLIMIT_FSIZE in bytes: writing on gives EFBIG
};

class TestProcess {
 public:
  // Throws std::runtime_error where no process can be made.
  explicit TestProcess(ProcessOptions options);
  // Kills and reaps it if it still runs.
  ~TestProcess();
  TestProcess(const TestProcess&) = delete;
  TestProcess& operator=(const TestProcess&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal) const;
  bool running() { return !Poll(); }
  // The exit code, or minus the signal that ended it; nullopt while it runs.
  std::optional<int> Poll();
  // The same, waited for. Throws std::runtime_error with the end of the output after `patience`.
  int Wait(absl::Duration patience = kPatience);
  // What it and its children wrote so far.
  std::string Output() const;

 private:
  const ProcessOptions options_;
  pid_t pid_ = 0;
  std::optional<int> ended_;
};

// Whole text of a file, "" without one.
std::string FileText(const std::string& path);

}  // namespace tandem::testing
