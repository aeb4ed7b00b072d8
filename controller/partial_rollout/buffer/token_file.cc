#include "controller/partial_rollout/buffer/token_file.h"

#include <cerrno>
#include <cstring>
#include <iterator>
#include <span>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "common/base/disk_refusal.h"
#include "common/base/log.h"
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

int64_t TokenFile::bytes() const {
  const MutexLock lock(end_mutex_);
  return end_;
}

absl::StatusOr<int64_t> TokenFile::Append(const TokenArrays& arrays) {
  const std::span<const char> tokens = BytesOf(arrays.tokens),
                              log_probs = BytesOf(arrays.log_probs);
  const MutexLock lock(end_mutex_);
  const size_t before = held_back_.size();
  held_back_.append(tokens.data(), tokens.size());
  held_back_.append(log_probs.data(), log_probs.size());
  const int64_t begin = end_ - std::ssize(held_back_) + std::ssize(tokens) + std::ssize(log_probs);
  const absl::Status written = WriteRunFile(fd_, path_, held_back_, begin);
  if (written.ok()) {
    held_back_.clear();
  } else if (!IsDiskRefused(written)) {
    held_back_.resize(before);
    return written;
  } else if (before == 0) {
    LogWarn("{}; samples are kept in memory until it can be written",
            std::string(written.message()));
  }
  return std::exchange(end_, end_ + std::ssize(tokens) + std::ssize(log_probs));
}

absl::StatusOr<TokenArrays> TokenFile::Read(int64_t offset, int64_t tokens, bool log_probs) const {
  TokenArrays arrays;
  arrays.tokens.resize(static_cast<size_t>(tokens));
  if (log_probs) arrays.log_probs.resize(arrays.tokens.size());
  const MutexLock lock(end_mutex_);
  TANDEM_RETURN_IF_ERROR(ReadAt(BytesOf(arrays.tokens), offset));
  TANDEM_RETURN_IF_ERROR(
      ReadAt(BytesOf(arrays.log_probs), offset + std::ssize(BytesOf(arrays.tokens))));
  return arrays;
}

absl::Status TokenFile::ReadAt(std::span<char> bytes, int64_t offset) const {
  const int64_t begin = end_ - std::ssize(held_back_);
  if (held_back_.empty() || offset < begin) return ReadRunFile(fd_, path_, bytes, offset);
  const auto at = static_cast<size_t>(offset - begin);
  if (at + bytes.size() > held_back_.size()) {
    return Internal("{}: {} bytes at {} were not appended", path_, bytes.size(), offset);
  }
  std::memcpy(bytes.data(), held_back_.data() + at, bytes.size());
  return absl::OkStatus();
}

}  // namespace tandem
