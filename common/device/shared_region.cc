#include "common/device/shared_region.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/numeric.h"
#include "common/base/status.h"
#include "common/device/device_memory.h"

namespace tandem {
namespace {

constexpr int64_t kSmallPage = 4096;

}  // namespace

absl::Status SharedRegion::Map(int protection) {
  constexpr int kFlags = MAP_SHARED | MAP_POPULATE;
  void* at = mmap(nullptr, static_cast<size_t>(bytes_), protection, kFlags, fd_.get(), 0);
  if (at == MAP_FAILED) {
    return MakeStatus(absl::StatusCode::kResourceExhausted,
                      "cannot map {} bytes of shared memory: {}", bytes_, strerror(errno));
  }
  data_ = static_cast<std::byte*>(at);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<SharedRegion>> SharedRegion::Create(
    const std::string& tag, int64_t bytes, Ledger* ledger, Location location, Pages pages) {
  const int64_t rounded = RoundUp(bytes, pages == Pages::kHuge ? kHugePageBytes : kSmallPage);
  TANDEM_ASSIGN_OR_RETURN(UniqueFd fd, CreateSharedMemory(tag, rounded, pages == Pages::kHuge));
  std::unique_ptr<SharedRegion> region(new SharedRegion(std::move(fd), rounded));
  TANDEM_RETURN_IF_ERROR(region->Map(PROT_READ | PROT_WRITE));
  region->tag_ = tag;
  region->location_ = location;
  region->owner_ = ledger;
  if (ledger != nullptr) ledger->Add(tag, location, rounded);
  return region;
}

absl::StatusOr<std::unique_ptr<SharedRegion>> SharedRegion::MapForeign(UniqueFd fd,
                                                                       int64_t bytes,
                                                                       Ledger* ledger,
                                                                       Access access) {
  TANDEM_RETURN_IF_ERROR(CheckSharedMemory(fd.get(), bytes));
  std::unique_ptr<SharedRegion> region(new SharedRegion(std::move(fd), bytes));
  absl::Status mapped;
  const auto map = [&] {
    mapped = region->Map(access == Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE);
    return mapped.ok();
  };
  if (ledger == nullptr) {
    map();
  } else {
    ledger->ChangeForeign(bytes, map);
  }
  TANDEM_RETURN_IF_ERROR(mapped);
  region->guest_ = ledger;
  return region;
}

SharedRegion::~SharedRegion() {
  const auto unmap = [this] {
    return data_ != nullptr && munmap(data_, static_cast<size_t>(bytes_)) == 0;
  };
  if (guest_ == nullptr) {
    unmap();
  } else {
    guest_->ChangeForeign(-bytes_, unmap);
  }
  if (owner_ != nullptr) owner_->Add(tag_, location_, -bytes_);
}

namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

absl::Status CannotShare(const std::string& name, int64_t bytes, const std::string& reason) {
  return MakeStatus(absl::StatusCode::kResourceExhausted,
                    "shared memory {}: cannot get {} bytes ({} MiB): {}", name, bytes, bytes >> 20,
                    reason);
}

// The kernel uses huge pages for shared memory only on request, and only for a range that has at
// least one page. Best effort: before Linux 6.1, or if memory is fragmented, pages stay small.
void AskForHugePages(int fd, int64_t bytes) {
  void* at = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) return;
  for (int64_t page = 0; page < bytes; page += kHugePageBytes) {
    if (fallocate(fd, 0, page, 1) != 0) break;
  }
  constexpr int kCollapse = 25;  // MADV_COLLAPSE, which older headers lack
  madvise(at, static_cast<size_t>(bytes), kCollapse);
  munmap(at, static_cast<size_t>(bytes));
}

}  // namespace

absl::StatusOr<UniqueFd> CreateSharedMemory(const std::string& name,
                                            int64_t bytes,
                                            bool huge_pages) {
  if (bytes <= 0) return InvalidArgument("shared memory {}: {} bytes were requested", name, bytes);
  const int64_t available = AvailableMemoryBytes();
  if (bytes > available) {
    return CannotShare(name, bytes, fmt::format("{} MiB are available", available >> 20));
  }
  UniqueFd fd(memfd_create(("tandem-" + name).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return Internal("memfd_create: {}", strerror(errno));
  if (ftruncate(fd.get(), bytes) != 0) return CannotShare(name, bytes, strerror(errno));
  if (huge_pages) AskForHugePages(fd.get(), bytes);
  // Allocates the pages now: a page that the machine lacks would raise SIGBUS at first touch.
  int result = 0;
  do {
    result = fallocate(fd.get(), 0, 0, bytes);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return CannotShare(name, bytes, strerror(errno));
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
    return InvalidArgument("the passed descriptor is not sealed shared memory");
  }
  if (info.st_size < bytes) {
    return InvalidArgument("the passed shared memory has {} bytes, {} were announced", info.st_size,
                           bytes);
  }
  return absl::OkStatus();
}

}  // namespace tandem
