// Files that a run writes while it goes on. Errors by IoErrorCode name the file, and where the disk
// is full the key of the folder; those of a full or failing disk are marked (disk_refusal.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <absl/status/status.h>

namespace tandem {

// The error of an operation on a file in the run's folder; `error` is an errno.
absl::Status RunFileError(const std::string& path, const char* action, int error);

// All of `bytes`, at an offset of the open file.
absl::Status WriteRunFile(int fd,
                          const std::string& path,
                          std::span<const char> bytes,
                          int64_t offset);
// DataLoss: the file ends earlier.
absl::Status ReadRunFile(int fd, const std::string& path, std::span<char> bytes, int64_t offset);

// The name under which a file or folder of an earlier run is kept: `path`.previous, or .previous-2
// and so on where that exists.
std::string UnusedPreviousPath(const std::string& path);

}  // namespace tandem
