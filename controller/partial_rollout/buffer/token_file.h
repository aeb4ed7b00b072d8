// The token arrays of buffered samples: an append-only temporary file without a name.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/base/mutex.h"

namespace tandem {

// The arrays of a response, without the prompt.
struct TokenArrays {
  std::vector<int32_t> tokens;
  std::vector<float> log_probs;  // one per token, or none at all
};

// One thread appends. Any thread may read at an offset that Append has returned: the bytes there
// never change. What a full or failing disk refuses (disk_refusal.h) is kept in memory and written
// by a later Append: no round fails for it, and no process reads the file later. Destroying
// the object, or the end of the process, frees the disk space.
class TokenFile {
 public:
  // `dir` must exist.
  static absl::StatusOr<std::shared_ptr<TokenFile>> Create(const std::string& dir);
  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  // Returns the arrays' offset. ResourceExhausted: the file may not become so large; arrays that
  // were appended before stay readable.
  absl::StatusOr<int64_t> Append(const TokenArrays& arrays);
  absl::StatusOr<TokenArrays> Read(int64_t offset, int64_t tokens, bool log_probs) const;
  int64_t bytes() const;
  // The size of one sample's arrays.
  static int64_t Bytes(int64_t tokens, bool log_probs) { return tokens * (log_probs ? 8 : 4); }

 private:
  TokenFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  absl::Status ReadAt(std::span<char> bytes, int64_t offset) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(end_mutex_);

  const std::string path_;
  const int fd_;
  mutable Mutex end_mutex_;
  int64_t end_ ABSL_GUARDED_BY(end_mutex_) = 0;
  // The end of the file that the disk has refused.
  std::string held_back_ ABSL_GUARDED_BY(end_mutex_);
};

}  // namespace tandem
