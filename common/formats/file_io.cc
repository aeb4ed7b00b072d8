#include "common/formats/file_io.h"

#include <cerrno>

#include <unistd.h>

#include "common/base/progress.h"

namespace tandem {

IoResult WriteAll(int fd, std::span<const char> bytes, int64_t offset) {
  IoResult done;
  while (done.bytes < bytes.size()) {
    const OutsideWait disk;  // its end counts as progress
    const ssize_t wrote = ::pwrite(fd, bytes.data() + done.bytes, bytes.size() - done.bytes,
                                   offset + static_cast<int64_t>(done.bytes));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return {done.bytes, wrote == 0 ? ENOSPC : errno};
    done.bytes += static_cast<size_t>(wrote);
  }
  return done;
}

IoResult ReadAll(int fd, std::span<char> bytes, int64_t offset) {
  IoResult done;
  while (done.bytes < bytes.size()) {
    const OutsideWait disk;
    const ssize_t got = ::pread(fd, bytes.data() + done.bytes, bytes.size() - done.bytes,
                                offset + static_cast<int64_t>(done.bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return {done.bytes, errno};
    if (got == 0) break;
    done.bytes += static_cast<size_t>(got);
  }
  return done;
}

AppendResult AppendOrCutBack(int fd, std::span<const char> record, int64_t end, Sync sync) {
  int error = WriteAll(fd, record, end).error;
  const OutsideWait wait;
  if (error == 0 && sync == Sync::kYes && ::fdatasync(fd) != 0) error = errno;
  if (error == 0) return {};
  return {.error = error, .torn = ::ftruncate(fd, end) != 0};
}

}  // namespace tandem
