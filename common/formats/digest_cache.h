// Remembers digests of files, so that a process that starts again need not read large ones again.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/formats/file_digest.h"

namespace tandem {

// A file is known while its path, device, inode, size and times of change are those that it was
// digested with; no program can set the last of these times. One that changed less than two seconds
// before it was digested is not remembered, because a later change might have the same time. Not
// thread-safe.
class DigestCache {
 public:
  // Reads `path`; a file that is missing or damaged is an empty cache.
  explicit DigestCache(std::string path);

  // DigestFiles, which reads only files that are not known.
  absl::StatusOr<std::vector<FileDigest>> Digest(const std::vector<std::string>& paths,
                                                 int threads);
  // Replaces the file by what was asked for since. Errors as WriteFileAtomically.
  absl::Status Save() const;

 private:
  struct Stamp {
    std::vector<int64_t> numbers;  // device, inode, bytes, seconds and nanoseconds of two times
    int64_t changed_seconds = 0;
  };
  struct Known {
    std::vector<int64_t> stamp;
    FileDigest digest;
  };
  static std::optional<Stamp> ReadStamp(const std::string& path);

  const std::string path_;
  std::map<std::string, Known> known_;
  std::map<std::string, Known> used_;  // to be saved
};

}  // namespace tandem
