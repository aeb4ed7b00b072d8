#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/status_macros.h"
#include "common/device/device_memory.h"
#include "common/device/local_socket.h"

namespace tandem {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

absl::Status CannotGive(const std::string& name, int64_t bytes, const std::string& reason) {
  return MakeStatus(absl::StatusCode::kResourceExhausted,
                    "shared memory {}: cannot get {} bytes ({} MiB): {}", name, bytes, bytes >> 20,
                    reason);
}

}  // namespace

absl::StatusOr<UniqueFd> CreateSharedMemory(const std::string& name, int64_t bytes) {
  if (bytes <= 0) return InvalidArgument("shared memory {}: {} bytes asked for", name, bytes);
  const int64_t available = AvailableMemoryBytes();
  if (bytes > available) {
    return CannotGive(name, bytes, fmt::format("{} MiB are available", available >> 20));
  }
  UniqueFd fd(memfd_create(("tandem-" + name).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return Internal("memfd_create: {}", strerror(errno));
  if (ftruncate(fd.get(), bytes) != 0) return CannotGive(name, bytes, strerror(errno));
  // Without this a page that the machine lacks would be SIGBUS at first touch.
  int result = 0;
  do {
    result = fallocate(fd.get(), 0, 0, bytes);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return CannotGive(name, bytes, strerror(errno));
  if (fcntl(fd.get(), F_ADD_SEALS, kSizeSeals | F_SEAL_SEAL) != 0) {
    return Internal("shared memory {}: cannot seal: {}", name, strerror(errno));
  }
  return fd;
}

absl::Status CheckSharedMemory(int fd, int64_t bytes) {
  struct stat info = {};
  if (fstat(fd, &info) != 0) return InvalidArgument("no descriptor came along");
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals) {
    return InvalidArgument("the passed descriptor is no sealed shared memory");
  }
  if (info.st_size < bytes) {
    return InvalidArgument("the passed shared memory has {} bytes, {} were announced", info.st_size,
                           bytes);
  }
  return absl::OkStatus();
}

}  // namespace tandem
