#include "common/process/directory_lock.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/base/status.h"
#include "common/process/process_identity.h"

namespace tandem {
namespace {

constexpr absl::Duration kRetryEvery = absl::Milliseconds(50);

// What the holder wrote of itself, or something to say in its place.
std::string ReadHolder(int fd) {
  char text[512];
  const ssize_t bytes = pread(fd, text, sizeof(text), 0);
  return bytes > 0 ? std::string(text, static_cast<size_t>(bytes)) : "another process";
}

// A failure is ignored: the lock holds without it, and only a message says less.
void WriteHolder(int fd, const std::string& holder) {
  const std::string text = fmt::format("{}, process {} on {}", holder, getpid(), HostName());
  if (ftruncate(fd, 0) == 0) (void)!pwrite(fd, text.data(), text.size(), 0);
}

}  // namespace

absl::StatusOr<DirectoryLock> DirectoryLock::Take(const std::string& directory,
                                                  const std::string& name,
                                                  const std::string& holder,
                                                  const std::string& remedy,
                                                  absl::Duration wait,
                                                  Clock& clock) {
  TANDEM_RETURN_IF_ERROR(MakeFolder(directory));
  const std::string path = directory + "/" + name;
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) {
    return MakeStatus(IoErrorCode(errno), "cannot open {}: {}", path, std::strerror(errno));
  }
  const Instant deadline = clock.Now() + wait;
  while (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return MakeStatus(IoErrorCode(errno), "cannot lock {}: {}", path, std::strerror(errno));
    }
    if (clock.Now() >= deadline) {
      return MakeStatus(absl::StatusCode::kAlreadyExists, "{} is in use ({}): {}", directory,
                        ReadHolder(fd.get()), remedy);
    }
    clock.Sleep(kRetryEvery);
  }
  WriteHolder(fd.get(), holder);
  return DirectoryLock(std::move(fd));
}

bool DirectoryLock::IsHeld(const std::string& directory, const std::string& name) {
  const UniqueFd fd(open((directory + "/" + name).c_str(), O_RDONLY | O_CLOEXEC));
  return fd.valid() && flock(fd.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

}  // namespace tandem
