// The token arrays of pooled samples: a file that is only appended to, without a name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace tandem {

// Of a file in the folder of the run; `error` is an errno.
absl::Status RunFileError(const std::string& path, const char* action, int error);

// Of the response, without the prompt.
struct PoolArrays {
  std::vector<int32_t> tokens;
  std::vector<float> log_probs;  // one for each, or none
};

// One thread appends; any thread may read what was appended before it got to know the offset. What
// lies there never changes. The disk space is given back with the object, or with the process.
class PoolFile {
 public:
  // In `dir`, which exists.
  static absl::StatusOr<std::shared_ptr<PoolFile>> Create(const std::string& dir);
  ~PoolFile();
  PoolFile(const PoolFile&) = delete;
  PoolFile& operator=(const PoolFile&) = delete;

  // Where they lie. ResourceExhausted: the disk is full; what was appended before stays.
  absl::StatusOr<int64_t> Append(const PoolArrays& arrays);
  absl::StatusOr<PoolArrays> Read(int64_t offset, int64_t tokens, bool log_probs) const;
  int64_t bytes() const { return end_; }
  // Of one sample's arrays.
  static int64_t Bytes(int64_t tokens, bool log_probs) { return tokens * (log_probs ? 8 : 4); }

 private:
  PoolFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  const std::string path_;
  const int fd_;
  int64_t end_ = 0;
};

}  // namespace tandem
