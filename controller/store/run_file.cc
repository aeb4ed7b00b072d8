#include "controller/store/run_file.h"

#include <cstring>

#include "common/base/disk_refusal.h"
#include "common/base/status.h"
#include "common/formats/file_io.h"
#include "common/formats/files.h"

namespace tandem {

absl::Status RunFileError(const std::string& path, const char* action, int error) {
  return MarkedByErrno(
      MakeStatus(IoErrorCode(error), "{}: {} failed: {}{}", path, action, std::strerror(error),
                 IsDiskFull(error) ? "; free disk space or choose another cluster.run_dir" : ""),
      error);
}

absl::Status WriteRunFile(int fd,
                          const std::string& path,
                          std::span<const char> bytes,
                          int64_t offset) {
  const int error = WriteAll(fd, bytes, offset).error;
  return error == 0 ? absl::OkStatus() : RunFileError(path, "writing", error);
}

absl::Status ReadRunFile(int fd, const std::string& path, std::span<char> bytes, int64_t offset) {
  const IoResult read = ReadAll(fd, bytes, offset);
  if (read.error != 0) return RunFileError(path, "reading", read.error);
  if (read.bytes == bytes.size()) return absl::OkStatus();
  return absl::DataLossError(path + " was cut short while in use");
}

std::string UnusedPreviousPath(const std::string& path) {
  std::string previous = path + ".previous";
  for (int n = 2; PathExists(previous); ++n) previous = fmt::format("{}.previous-{}", path, n);
  return previous;
}

}  // namespace tandem
