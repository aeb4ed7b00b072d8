#include "common/base/log_file.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <unistd.h>

#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

// Makes a file the standard error stream, and on request standard output, while it lives.
class StreamsInFile {
 public:
  StreamsInFile(const std::string& path, bool output) {
    std::fflush(nullptr);
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    dup2(fd, STDERR_FILENO);
    if (output) dup2(fd, STDOUT_FILENO);
    close(fd);
  }
  ~StreamsInFile() {
    std::fflush(nullptr);
    dup2(error_, STDERR_FILENO);
    dup2(output_, STDOUT_FILENO);
    close(error_);
    close(output_);
  }

 private:
  const int error_ = dup(STDERR_FILENO);
  const int output_ = dup(STDOUT_FILENO);
};

bool Write(int fd, const std::string& line) {
  return write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size());
}

std::string LogFileText(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::set<std::string> NamesIn(const testing::TempDir& dir) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path())) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

}  // namespace

TEST_CASE("a log that is too large is renamed, and no line is lost", "[log_file]") {
  const testing::TempDir dir;
  const std::string path = dir.path() / "trainer-0.log";
  {
    const StreamsInFile streams(path, /*output=*/true);
    LogFile log(path, 10, 2);
    for (int i = 0; i < 4; ++i) {
      Write(STDERR_FILENO, "error " + std::to_string(i) + "\n");
      log.RotateIfLarge();  // 8 bytes: not yet
      Write(STDOUT_FILENO, "output " + std::to_string(i) + "\n");
      log.RotateIfLarge();
    }
    Write(STDERR_FILENO, "last\n");
  }
  REQUIRE(LogFileText(path) == "last\n");
  REQUIRE(LogFileText(path + ".1") == "error 3\noutput 3\n");
  REQUIRE(LogFileText(path + ".2") == "error 2\noutput 2\n");
  REQUIRE(NamesIn(dir) ==
          std::set<std::string>{"trainer-0.log", "trainer-0.log.1", "trainer-0.log.2"});
}

TEST_CASE("standard output that goes elsewhere stays there", "[log_file]") {
  const testing::TempDir dir;
  const std::string path = dir.path() / "controller-0.log";
  const std::string output = dir.path() / "terminal";
  {
    const StreamsInFile other(output, /*output=*/true);
    const StreamsInFile streams(path, /*output=*/false);
    LogFile log(path, 1, 1);
    Write(STDERR_FILENO, "before\n");
    log.RotateIfLarge();
    Write(STDOUT_FILENO, "said\n");
    Write(STDERR_FILENO, "after\n");
  }
  REQUIRE(LogFileText(output) == "said\n");
  REQUIRE(LogFileText(path + ".1") == "before\n");
  REQUIRE(LogFileText(path) == "after\n");
}

TEST_CASE("a stream that is not the launcher's file is left alone", "[log_file]") {
  const testing::TempDir dir;
  const std::string path = dir.path() / "rollout-0.log";
  const std::string other = dir.path() / "mine";
  {
    const StreamsInFile streams(other, /*output=*/false);
    std::ofstream(path) << "of another process";
    LogFile log(path, 1, 1);
    Write(STDERR_FILENO, "a line\n");
    log.RotateIfLarge();
  }
  REQUIRE(NamesIn(dir) == std::set<std::string>{"mine", "rollout-0.log"});
  REQUIRE(LogFileText(other) == "a line\n");
}

TEST_CASE("a launcher's variables ask for it", "[log_file]") {
  unsetenv(kLogFileVariable);
  REQUIRE_FALSE(LogFile::FromEnvironment());
  setenv(kLogFileVariable, "/nowhere/log", 1);
  setenv(kLogMaxBytesVariable, "0", 1);
  setenv(kLogFilesToKeepVariable, "3", 1);
  REQUIRE_FALSE(LogFile::FromEnvironment());
  setenv(kLogMaxBytesVariable, "100", 1);
  REQUIRE(LogFile::FromEnvironment());
  unsetenv(kLogFileVariable);
}

}  // namespace tandem
