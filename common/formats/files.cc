#include "common/formats/files.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/disk_refusal.h"
#include "common/base/progress.h"
#include "common/base/status.h"
#include "common/formats/file_io.h"
#include "common/process/files/sync_folder.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

absl::Status IoError(const std::string& path, const std::string& action, int error) {
  return MarkedByErrno(
      MakeStatus(IoErrorCode(error), "{}: {} failed: {}{}", path, action, std::strerror(error),
                 IsDiskFull(error) ? "; free disk space or choose another directory" : ""),
      error);
}

std::string ParentDirectory(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

// Without a trailing slash, so that the suffix is appended to the name.
std::string Trimmed(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

std::string PartialPath(const std::string& path) { return Trimmed(path) + kPartialSuffix; }

absl::Status SyncDirectory(const std::string& directory) {
  const int error = SyncFolder(directory);
  return error == 0 ? absl::OkStatus() : IoError(directory, "syncing the directory", error);
}

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(const std::string& path) {
  const std::string partial = PartialPath(path);
  const int fd = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return IoError(partial, "creating the file", errno);
  return std::unique_ptr<AtomicFile>(new AtomicFile(Trimmed(path), fd));
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(PartialPath(path_).c_str());
}

absl::Status AtomicFile::Reserve(uint64_t bytes) {
  if (bytes == 0 || ::fallocate(fd_, 0, 0, static_cast<off_t>(bytes)) == 0) return absl::OkStatus();
  // File systems without fallocate report a full disk at the write instead.
  if (errno == EOPNOTSUPP || errno == ENOSYS) return absl::OkStatus();
  return IoError(path_, fmt::format("reserving {} bytes", bytes), errno);
}

absl::Status AtomicFile::Append(const void* data, size_t bytes) {
  TANDEM_RETURN_IF_ERROR(WriteAt(appended_, data, bytes));
  appended_ += bytes;
  return absl::OkStatus();
}

absl::Status AtomicFile::WriteAt(uint64_t offset, const void* data, size_t bytes) {
  const IoResult write =
      WriteAll(fd_, {static_cast<const char*>(data), bytes}, static_cast<int64_t>(offset));
  if (write.error == 0) return absl::OkStatus();
  return IoError(
      path_,
      fmt::format("writing {} bytes at byte {} ({} of them written)", bytes, offset, write.bytes),
      write.error);
}

absl::Status AtomicFile::Commit() {
  const std::string partial = PartialPath(path_);
  const OutsideWait wait;
  if (::fsync(fd_) != 0) return IoError(path_, "syncing the file", errno);
  const int closed = ::close(fd_);
  fd_ = -1;
  if (closed != 0 || ::rename(partial.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    ::unlink(partial.c_str());
    return IoError(path_, "renaming the finished file", error);
  }
  return SyncDirectory(ParentDirectory(path_));
}

absl::Status WriteFileAtomically(const std::string& path, const std::string& content) {
  TANDEM_ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(path));
  TANDEM_RETURN_IF_ERROR(file->Append(content.data(), content.size()));
  return file->Commit();
}

namespace {

absl::Status OpenError(const std::string& path, int error) {
  return MakeStatus(IoErrorCode(error), "{} cannot be read: {}", path, std::strerror(error));
}

// The caller closes the descriptor.
struct OpenFile {
  int fd = -1;
  size_t size = 0;
  struct stat info = {};
};

absl::StatusOr<OpenFile> OpenRegular(const std::string& path) {
  OpenFile file;
  // O_NONBLOCK: opening a named pipe does not wait for its other end.
  file.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd < 0) return OpenError(path, errno);
  if (::fstat(file.fd, &file.info) != 0 || !S_ISREG(file.info.st_mode)) {
    const int error = S_ISDIR(file.info.st_mode) ? EISDIR : EINVAL;
    ::close(file.fd);
    return OpenError(path, error);
  }
  file.size = static_cast<size_t>(file.info.st_size);
  return file;
}

}  // namespace

bool PathExists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path) {
  // Read, not mapped: a file that becomes shorter meanwhile is then merely shorter.
  TANDEM_ASSIGN_OR_RETURN(const OpenFile file, OpenRegular(path));
  std::string text(file.size, '\0');
  size_t done = 0;
  while (done < text.size()) {
    const OutsideWait disk;  // its end counts as progress
    const ssize_t got =
        ::pread(file.fd, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int error = errno;
      ::close(file.fd);
      return OpenError(path, error);
    }
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  ::close(file.fd);
  text.resize(done);
  return text;
}

absl::StatusOr<std::unique_ptr<AtomicDirectory>> AtomicDirectory::Create(const std::string& path,
                                                                         IfExists if_exists) {
  const std::string partial = PartialPath(path);
  std::error_code error;
  if (if_exists == IfExists::kRefuse && fs::exists(path, error) && !fs::is_empty(path, error)) {
    return absl::AlreadyExistsError(
        fmt::format("{} already exists and is not empty: remove it or choose another path", path));
  }
  fs::remove_all(partial, error);
  if (error) return IoError(partial, "removing an unfinished directory", error.value());
  fs::create_directories(partial, error);
  if (error) return IoError(partial, "making the directory", error.value());
  return std::unique_ptr<AtomicDirectory>(new AtomicDirectory(Trimmed(path)));
}

AtomicDirectory::~AtomicDirectory() {
  if (committed_) return;
  std::error_code ignored;
  fs::remove_all(partial_path(), ignored);
}

absl::Status AtomicDirectory::Commit() {
  const std::string partial = partial_path();
  TANDEM_RETURN_IF_ERROR(SyncDirectory(partial));
  if (::rename(partial.c_str(), path_.c_str()) != 0) {
    if (errno != ENOTEMPTY && errno != EEXIST) {
      return IoError(path_, "renaming the finished directory", errno);
    }
    // Exchanges the old directory for the new one, so that one of the two always exists.
    if (::syscall(SYS_renameat2, AT_FDCWD, partial.c_str(), AT_FDCWD, path_.c_str(),
                  RENAME_EXCHANGE) != 0) {
      return IoError(path_, "replacing the old directory", errno);
    }
    std::error_code ignored;
    fs::remove_all(partial, ignored);
  }
  committed_ = true;
  return SyncDirectory(ParentDirectory(path_));
}

namespace {

constexpr size_t kReadChunk = size_t{128} << 10;

}  // namespace

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const OpenFile file, OpenRegular(path));
  void* data = nullptr;
  if (file.size > 0) data = ::mmap(nullptr, file.size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  const int error = errno;
  ::close(file.fd);
  if (data == MAP_FAILED) return OpenError(path, error);
  return std::shared_ptr<const MappedFile>(
      new MappedFile(path, static_cast<const uint8_t*>(data), file.size,
                     {.device = file.info.st_dev, .inode = file.info.st_ino}));
}

absl::Status MappedFile::CheckWhole() const {
  // The rest of the page with the new end reads as zeros without a signal, so the size is compared.
  struct stat now = {};
  const bool same = ::stat(path_.c_str(), &now) == 0 && now.st_dev == identity_.device &&
                    now.st_ino == identity_.inode;
  const bool shorter = same && static_cast<size_t>(now.st_size) < size_;
  if (!shorter && !guard_.touched_missing()) return absl::OkStatus();
  return MakeStatus(absl::StatusCode::kDataLoss,
                    "{} became shorter while it was read: it had {} bytes; fetch it again, and "
                    "replace files in use by a rename instead of writing into them",
                    path_, size_);
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
  // The system reads no more at a time than its readahead.
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
