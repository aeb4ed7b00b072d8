// Rotation of the log file that a launcher opened as a process's stderr.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tandem {

// The variables by which a launcher names file, limit and number (LogFile::FromEnvironment).
inline constexpr char kLogFileVariable[] = "TANDEM_LOG_FILE";
inline constexpr char kLogMaxBytesVariable[] = "TANDEM_LOG_MAX_BYTES";
inline constexpr char kLogFilesToKeepVariable[] = "TANDEM_LOG_FILES_TO_KEEP";

// Not thread-safe.
class LogFile {
 public:
  // `keep`: how many renamed files stay; at least 1.
  LogFile(std::string path, int64_t max_bytes, int keep)
      : path_(std::move(path)), max_bytes_(max_bytes), keep_(keep) {}
  // nullopt: no launcher asks for it.
  static std::optional<LogFile> FromEnvironment();

  // Where the standard error stream is the file and it has more than max_bytes, renames it to
  // PATH.1, earlier ones to PATH.2 and so on, and opens a new one for the standard error stream,
  // and for standard output where that was the same file. What other code writes to these streams
  // goes there, too: no line is lost. Where a new file cannot be opened nothing changes.
  void RotateIfLarge();

 private:
  std::string Renamed(int number) const;

  std::string path_;
  int64_t max_bytes_;
  int keep_;
};

}  // namespace tandem
