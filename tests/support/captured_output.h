// What this process writes to stdout and stderr, its log included, while an object of this class
// lives.
#pragma once

#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include "tests/support/temp_dir.h"

namespace tandem::testing {

// One at a time. Assert after it has ended: what an assertion prints would be captured, too.
class CapturedOutput {
 public:
  CapturedOutput() : path_(dir_.path() / "output") {
    FlushAll();
    const int file = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
      (stream == STDOUT_FILENO ? stdout_ : stderr_) = dup(stream);
      dup2(file, stream);
    }
    close(file);
  }
  ~CapturedOutput() { End(); }
  CapturedOutput(const CapturedOutput&) = delete;
  CapturedOutput& operator=(const CapturedOutput&) = delete;

  // Ends the capture.
  std::string Text() {
    End();
    std::ifstream file(path_);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

 private:
  static void FlushAll() {
    std::cout << std::flush;
    std::fflush(nullptr);
  }
  void End() {
    if (stdout_ < 0) return;
    FlushAll();
    dup2(stdout_, STDOUT_FILENO);
    dup2(stderr_, STDERR_FILENO);
    close(stdout_);
    close(stderr_);
    stdout_ = stderr_ = -1;
  }

  TempDir dir_;
  const std::string path_;
  int stdout_ = -1, stderr_ = -1;  // the process's own
};

}  // namespace tandem::testing
