#include "common/base/log_file.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tandem {
namespace {

bool SameFile(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

int64_t NumberIn(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::strtoll(text, nullptr, 10);
}

}  // namespace

std::optional<LogFile> LogFile::FromEnvironment() {
  const char* path = std::getenv(kLogFileVariable);
  const int64_t max_bytes = NumberIn(kLogMaxBytesVariable);
  const int64_t keep = NumberIn(kLogFilesToKeepVariable);
  if (path == nullptr || max_bytes <= 0 || keep <= 0) return std::nullopt;
  return LogFile(path, max_bytes, static_cast<int>(keep));
}

std::string LogFile::Renamed(int number) const { return path_ + "." + std::to_string(number); }

void LogFile::RotateIfLarge() {
  struct stat stream {};
  struct stat file {};
  if (fstat(STDERR_FILENO, &stream) != 0 || stream.st_size <= max_bytes_) return;
  // Somebody may have renamed it, or given the process another stream.
  if (stat(path_.c_str(), &file) != 0 || !SameFile(stream, file)) return;
  struct stat output {};
  const bool is_output = fstat(STDOUT_FILENO, &output) == 0 && SameFile(output, stream);

  // Under another name at first: a disk that is full keeps the log that there is.
  const std::string fresh = path_ + ".new";
  const int fd = open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return;
  for (int number = keep_ - 1; number >= 1; --number) {
    std::rename(Renamed(number).c_str(), Renamed(number + 1).c_str());
  }
  std::rename(path_.c_str(), Renamed(1).c_str());
  std::rename(fresh.c_str(), path_.c_str());
  dup2(fd, STDERR_FILENO);
  if (is_output) dup2(fd, STDOUT_FILENO);
  close(fd);
}

}  // namespace tandem
