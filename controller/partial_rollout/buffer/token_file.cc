#include "controller/partial_rollout/buffer/token_file.h"

#include <cerrno>
#include <span>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "common/base/status.h"
#include "controller/store/run_file.h"

namespace tandem {
namespace {

template <typename T>
std::span<const char> BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <typename T>
std::span<char> BytesOf(std::vector<T>& values) {
  return {reinterpret_cast<char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace

absl::StatusOr<std::shared_ptr<TokenFile>> TokenFile::Create(const std::string& dir) {
  std::string path = dir + "/tokens.XXXXXX";
  const int fd = mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0) return RunFileError(path, "creating the file", errno);
  unlink(path.c_str());
  return std::shared_ptr<TokenFile>(new TokenFile(std::move(path), fd));
}

TokenFile::~TokenFile() { close(fd_); }

absl::StatusOr<int64_t> TokenFile::Append(const TokenArrays& arrays) {
  const std::span<const char> tokens = BytesOf(arrays.tokens),
                              log_probs = BytesOf(arrays.log_probs);
  TANDEM_RETURN_IF_ERROR(WriteRunFile(fd_, path_, tokens, end_));
  TANDEM_RETURN_IF_ERROR(WriteRunFile(fd_, path_, log_probs, end_ + std::ssize(tokens)));
  return std::exchange(end_, end_ + std::ssize(tokens) + std::ssize(log_probs));
}

absl::StatusOr<TokenArrays> TokenFile::Read(int64_t offset, int64_t tokens, bool log_probs) const {
  TokenArrays arrays;
  arrays.tokens.resize(static_cast<size_t>(tokens));
  if (log_probs) arrays.log_probs.resize(arrays.tokens.size());
  TANDEM_RETURN_IF_ERROR(ReadRunFile(fd_, path_, BytesOf(arrays.tokens), offset));
  TANDEM_RETURN_IF_ERROR(ReadRunFile(fd_, path_, BytesOf(arrays.log_probs),
                                     offset + std::ssize(BytesOf(arrays.tokens))));
  return arrays;
}

}  // namespace tandem
