#include "common/device/file_region.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/numeric.h"
#include "common/base/status.h"

namespace tandem {
namespace {

absl::Status CannotOffload(const std::string& tag,
                           const std::string& directory,
                           int64_t bytes,
                           int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG || error == ENOMEM;
  return MakeStatus(
      full ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kFailedPrecondition,
      "offloading {} to a file of {} bytes ({} MiB) in {}: {}; make room there, choose "
      "another cluster.run_dir, or offload less",
      tag, bytes, bytes >> 20, directory, strerror(error));
}

// Opens a file without a name or, if the file system does not support that, unlinks it at once.
UniqueFd OpenUnnamed(const std::string& directory) {
  const int unnamed = open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (unnamed >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return UniqueFd(unnamed);
  std::string path = directory + "/offload-XXXXXX";
  const int named = mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) unlink(path.c_str());
  return UniqueFd(named);
}

void WarnIfMemory(const std::string& tag, const std::string& directory, int fd) {
  struct statfs info = {};
  if (fstatfs(fd, &info) != 0 || info.f_type != TMPFS_MAGIC) return;
  LogWarn(
      "{} is offloaded to {}, which is in memory itself (tmpfs): that frees nothing. Put "
      "cluster.run_dir on a disk",
      tag, directory);
}

}  // namespace

absl::StatusOr<std::unique_ptr<FileRegion>> FileRegion::Create(const std::string& tag,
                                                               const std::string& directory,
                                                               int64_t bytes,
                                                               Ledger* ledger) {
  if (bytes <= 0) return InvalidArgument("offloading {}: {} bytes were requested", tag, bytes);
  UniqueFd fd = OpenUnnamed(directory);
  if (!fd.valid()) return CannotOffload(tag, directory, bytes, errno);
  // Allocates the blocks now: a block that the disk lacks would raise SIGBUS at first touch.
  int result = 0;
  do {
    result = posix_fallocate(fd.get(), 0, bytes);
  } while (result == EINTR);
  if (result != 0) return CannotOffload(tag, directory, bytes, result);
  WarnIfMemory(tag, directory, fd.get());
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return CannotOffload(tag, directory, bytes, errno);
  return std::unique_ptr<FileRegion>(
      new FileRegion(tag, std::move(fd), static_cast<std::byte*>(data), bytes, ledger));
}

FileRegion::FileRegion(std::string tag, UniqueFd fd, std::byte* data, int64_t bytes, Ledger* ledger)
    : tag_(std::move(tag)), fd_(std::move(fd)), data_(data), bytes_(bytes), ledger_(ledger) {
  if (ledger_ == nullptr) return;
  ledger_->AddRegion(this, tag_, Location::kFile, bytes_, [this] { return BytesInUse(); });
}

FileRegion::~FileRegion() {
  if (ledger_ != nullptr) ledger_->RemoveRegion(this);
  munmap(data_, bytes_);
}

void FileRegion::Evict(int64_t offset, int64_t bytes) {
  // Keeps pages at the ends of the range that neighbouring ranges share.
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t first = RoundUp(offset, page);
  const int64_t last = offset + bytes >= bytes_ ? bytes_ : (offset + bytes) / page * page;
  if (last <= first) return;
  madvise(data_ + first, last - first, MADV_DONTNEED);
  sync_file_range(fd_.get(), first, last - first, SYNC_FILE_RANGE_WRITE);
}

void FileRegion::WillNeed(int64_t offset, int64_t bytes) {
  posix_fadvise(fd_.get(), offset, bytes, POSIX_FADV_WILLNEED);
}

int64_t FileRegion::BytesInUse() const {
  // In /proc/self/pagemap, bit 63 of an entry says that the process maps the page. Bit 62 normally
  // means swap; for a page of a file, which is never in swap, it means that the system is just
  // migrating the page.
  const int64_t page = sysconf(_SC_PAGESIZE);
  std::vector<uint64_t> entries((bytes_ + page - 1) / page);
  const UniqueFd pagemap(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  const auto start = static_cast<off_t>(reinterpret_cast<uintptr_t>(data_) / page * 8);
  const ssize_t got = pread(pagemap.get(), entries.data(), entries.size() * 8, start);
  const auto count = std::max<ssize_t>(0, got) / 8;
  return page * std::count_if(entries.begin(), entries.begin() + count,
                              [](uint64_t entry) { return (entry >> 62) != 0; });
}

}  // namespace tandem
