#include "common/formats/atomic_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/io_status.h"
#include "common/base/status_macros.h"
#include "common/formats/mapped_file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

absl::Status IoError(const std::string& path, const std::string& action, int error) {
  return MakeStatus(IoErrorCode(error), "{}: {} failed: {}{}", path, action, std::strerror(error),
                    IsDiskFull(error) ? "; free disk space or choose another directory" : "");
}

std::string ParentOf(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

// Without a trailing slash, so that the suffix lands on the name.
std::string Trimmed(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

std::string PartialPath(const std::string& path) { return Trimmed(path) + kPartialSuffix; }

absl::Status SyncDirectory(const std::string& directory) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return IoError(directory, "opening the directory", errno);
  const int result = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  // Some network file systems cannot sync directories.
  if (result != 0 && error != EINVAL && error != ENOTSUP) {
    return IoError(directory, "syncing the directory", error);
  }
  return absl::OkStatus();
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
  // File systems without fallocate run out of space at the write instead.
  if (errno == EOPNOTSUPP || errno == ENOSYS) return absl::OkStatus();
  return IoError(path_, fmt::format("reserving {} bytes", bytes), errno);
}

absl::Status AtomicFile::Append(const void* data, size_t bytes) {
  TANDEM_RETURN_IF_ERROR(WriteAt(appended_, data, bytes));
  appended_ += bytes;
  return absl::OkStatus();
}

absl::Status AtomicFile::WriteAt(uint64_t offset, const void* data, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t written = ::pwrite(fd_, static_cast<const char*>(data) + done, bytes - done,
                                     static_cast<off_t>(offset + done));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int error = written == 0 ? ENOSPC : errno;
      return IoError(
          path_,
          fmt::format("writing {} bytes at byte {} ({} of them written)", bytes, offset, done),
          error);
    }
    done += static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::Commit() {
  const std::string partial = PartialPath(path_);
  if (::fsync(fd_) != 0) return IoError(path_, "syncing the file", errno);
  const int closed = ::close(fd_);
  fd_ = -1;
  if (closed != 0 || ::rename(partial.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    ::unlink(partial.c_str());
    return IoError(path_, "renaming the finished file", error);
  }
  return SyncDirectory(ParentOf(path_));
}

absl::Status WriteFileAtomically(const std::string& path, const std::string& content) {
  TANDEM_ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(path));
  TANDEM_RETURN_IF_ERROR(file->Append(content.data(), content.size()));
  return file->Commit();
}

bool PathExists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const auto file, MappedFile::Open(path));
  return std::string(reinterpret_cast<const char*>(file->data()), file->size());
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
    // The old directory goes in exchange for the new one: no moment without either.
    if (::syscall(SYS_renameat2, AT_FDCWD, partial.c_str(), AT_FDCWD, path_.c_str(),
                  RENAME_EXCHANGE) != 0) {
      return IoError(path_, "replacing the old directory", errno);
    }
    std::error_code ignored;
    fs::remove_all(partial, ignored);
  }
  committed_ = true;
  return SyncDirectory(ParentOf(path_));
}

}  // namespace tandem
