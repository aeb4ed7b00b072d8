// The token arrays of buffered samples: an append-only temporary file without a name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace tandem {

// The arrays of a response, without the prompt.
struct TokenArrays {
  std::vector<int32_t> tokens;
  std::vector<float> log_probs;  // one per token, or none at all
};

// One thread appends. Any thread may read at an offset that Append has returned: the bytes there
// never change. Destroying the object, or the end of the process, frees the disk space.
class TokenFile {
 public:
  // `dir` must exist.
  static absl::StatusOr<std::shared_ptr<TokenFile>> Create(const std::string& dir);
  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  // Returns the arrays' offset. ResourceExhausted: the disk is full; arrays that were appended
  // before stay readable.
  absl::StatusOr<int64_t> Append(const TokenArrays& arrays);
  absl::StatusOr<TokenArrays> Read(int64_t offset, int64_t tokens, bool log_probs) const;
  int64_t bytes() const { return end_; }
  // The size of one sample's arrays.
  static int64_t Bytes(int64_t tokens, bool log_probs) { return tokens * (log_probs ? 8 : 4); }

 private:
  TokenFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  const std::string path_;
  const int fd_;
  int64_t end_ = 0;
};

}  // namespace tandem
