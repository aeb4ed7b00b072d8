#include "common/formats/mapped_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/io_status.h"
#include "common/base/status_macros.h"

namespace tandem {
namespace {

constexpr size_t kReadChunk = size_t{128} << 10;

absl::Status OpenError(const std::string& path, int error) {
  return MakeStatus(IoErrorCode(error), "{} cannot be read: {}", path, std::strerror(error));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return OpenError(path, errno);
  struct stat info = {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    const int error = S_ISDIR(info.st_mode) ? EISDIR : EINVAL;
    ::close(fd);
    return OpenError(path, error);
  }
  const size_t size = static_cast<size_t>(info.st_size);
  void* data = nullptr;
  if (size > 0) data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  ::close(fd);
  if (data == MAP_FAILED) return OpenError(path, error);
  return std::shared_ptr<const MappedFile>(
      new MappedFile(path, static_cast<const uint8_t*>(data), size));
}

MappedFile::~MappedFile() {
  if (size_ > 0) ::munmap(const_cast<uint8_t*>(data_), size_);
}

void MappedFile::ReadExactly(const void* first, size_t bytes) const {
  if (bytes == 0) return;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const auto offset = static_cast<size_t>(static_cast<const uint8_t*>(first) - data_);
  const size_t begin = offset / page * page;
  auto* const data = const_cast<uint8_t*>(data_);
  ::madvise(data + begin, offset + bytes - begin, MADV_RANDOM);
  // The system takes no more at a time than it would read ahead.
  for (size_t at = begin; at < offset + bytes; at += kReadChunk) {
    ::madvise(data + at, std::min(kReadChunk, offset + bytes - at), MADV_WILLNEED);
  }
}

void MappedFile::LetGo(const void* first, size_t bytes) const {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const auto offset = static_cast<size_t>(static_cast<const uint8_t*>(first) - data_);
  const size_t begin = (offset + page - 1) / page * page;
  const size_t end = offset + bytes == size_ ? size_ : (offset + bytes) / page * page;
  if (begin < end) ::madvise(const_cast<uint8_t*>(data_) + begin, end - begin, MADV_DONTNEED);
}

}  // namespace tandem
