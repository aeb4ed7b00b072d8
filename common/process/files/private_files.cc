#include "common/process/files/private_files.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/disk_refusal.h"
#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/status.h"
#include "common/process/files/sync_folder.h"
#include "common/process/local_socket.h"

namespace tandem {
namespace {

constexpr mode_t kOthers = 0077, kOthersWrite = 0022;

// Makes what is missing of `folder`, where others may read but not write, whatever the umask.
absl::Status MakeParents(const std::filesystem::path& folder) {
  std::filesystem::path at;
  std::error_code unknown;
  for (const std::filesystem::path& part : folder) {
    at /= part;
    if (std::filesystem::is_directory(at, unknown)) continue;
    if (mkdir(at.c_str(), 0755) != 0) TANDEM_RETURN_IF_ERROR(MakeFolder(at));  // says why not
  }
  return absl::OkStatus();
}

// Makes `path` with mode 0700 where it is missing, and what is above it.
absl::Status MakeMissing(const std::string& path) {
  std::filesystem::path folder = std::filesystem::path(path).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // "a/b/" names a/b
  TANDEM_RETURN_IF_ERROR(MakeParents(folder.parent_path()));
  // The second change gives the owner what an odd umask took.
  if (mkdir(path.c_str(), 0700) == 0 && chmod(path.c_str(), 0700) == 0) return absl::OkStatus();
  return MakeFolder(path);  // it is there, or cannot be made
}

// A folder, and what can be done with it.
struct Folder {
  UniqueFd fd;
  struct stat info {};

  bool open_to(mode_t bits) const { return (info.st_mode & bits) != 0; }
  bool ours() const { return info.st_uid == geteuid() || geteuid() == 0; }
  // Whether the mode is now without `bits`. File systems that keep no modes let fchmod succeed.
  bool Close(mode_t bits) const {
    struct stat now {};
    return fchmod(fd.get(), info.st_mode & 07777 & ~bits) == 0 && fstat(fd.get(), &now) == 0 &&
           (now.st_mode & bits) == 0;
  }
};

absl::StatusOr<Folder> OpenFolder(const std::string& path) {
  Folder folder{.fd = UniqueFd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC))};
  if (!folder.fd.valid() || fstat(folder.fd.get(), &folder.info) != 0) {
    return MarkedByErrno(
        MakeStatus(IoErrorCode(errno), "cannot open the folder {}: {}", path, std::strerror(errno)),
        errno);
  }
  return folder;
}

absl::Status WritableByOthers(const std::string& path, const Folder& folder) {
  return MakeStatus(absl::StatusCode::kPermissionDenied,
                    "other users can write in {} (mode {:04o}, owner {}): choose a folder below "
                    "it, or take that right away with chmod go-w {}",
                    path, folder.info.st_mode & 07777, folder.info.st_uid, path);
}

absl::Status CannotClose(const std::string& path, const Folder& folder) {
  return MakeStatus(absl::StatusCode::kPermissionDenied,
                    "{} is open to other users (mode {:04o}), and changing its mode has no effect, "
                    "as on file systems that keep no modes: choose a folder on another file system",
                    path, folder.info.st_mode & 07777);
}

// Refuses a folder that no change of its mode makes private; changes nothing.
absl::Status RefuseSharedFolder(const std::string& path, const Folder& folder) {
  if (folder.open_to(S_ISVTX) && folder.open_to(kOthersWrite)) {
    return MakeStatus(absl::StatusCode::kPermissionDenied,
                      "{} is a folder that users of this host share (mode {:04o}): choose a folder "
                      "below it",
                      path, folder.info.st_mode & 07777);
  }
  if (!folder.ours() && folder.info.st_uid != 0) {
    return MakeStatus(absl::StatusCode::kPermissionDenied,
                      "{} belongs to another user ({}), who could read and replace what is kept "
                      "there: choose another folder",
                      path, folder.info.st_uid);
  }
  return !folder.ours() && folder.open_to(kOthersWrite) ? WritableByOthers(path, folder)
                                                        : absl::OkStatus();
}

absl::Status ClosePrivate(const std::string& path, const Folder& folder) {
  TANDEM_RETURN_IF_ERROR(RefuseSharedFolder(path, folder));
  if (!folder.open_to(kOthers)) return absl::OkStatus();
  if (folder.ours() && folder.Close(kOthers)) {
    LogInfo("{} was open to other users (mode {:04o}): closed it, now {:04o}", path,
            folder.info.st_mode & 07777, folder.info.st_mode & 07777 & ~kOthers);
    return absl::OkStatus();
  }
  if (folder.info.st_uid == geteuid()) return CannotClose(path, folder);
  if (folder.open_to(kOthersWrite)) return WritableByOthers(path, folder);
  LogWarn("{} can be read by other users (mode {:04o}), and that cannot be changed", path,
          folder.info.st_mode & 07777);
  return absl::OkStatus();
}

// Whether other users can put a socket of theirs in the place of ours. With the sticky bit they
// remove only what is their own.
bool OthersReplaceSockets(const Folder& folder) {
  return folder.open_to(kOthersWrite) && !folder.open_to(S_ISVTX);
}

// Refuses a folder in which others can replace sockets and which is not this user's to change;
// changes nothing.
absl::Status RefuseSocketFolder(const std::string& path, const Folder& folder) {
  return OthersReplaceSockets(folder) && !folder.ours() ? WritableByOthers(path, folder)
                                                        : absl::OkStatus();
}

}  // namespace

void KeepOthersFromWriting() { umask(umask(0777) | kOthersWrite); }

absl::Status MakePrivateFolder(const std::string& path) {
  TANDEM_RETURN_IF_ERROR(MakeMissing(path));
  TANDEM_ASSIGN_OR_RETURN(const Folder folder, OpenFolder(path));
  return ClosePrivate(path, folder);
}

absl::Status CheckPrivateFolder(const std::string& path) {
  std::error_code unknown;
  if (!std::filesystem::is_directory(path, unknown)) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const Folder folder, OpenFolder(path));
  return RefuseSharedFolder(path, folder);
}

absl::Status MakeSocketFolder(const std::string& path) {
  TANDEM_RETURN_IF_ERROR(MakeMissing(path));
  TANDEM_ASSIGN_OR_RETURN(const Folder folder, OpenFolder(path));
  TANDEM_RETURN_IF_ERROR(RefuseSocketFolder(path, folder));
  if (!OthersReplaceSockets(folder)) return absl::OkStatus();
  if (!folder.Close(kOthersWrite)) return WritableByOthers(path, folder);
  LogInfo("other users could write in {} (mode {:04o}): took that right away", path,
          folder.info.st_mode & 07777);
  return absl::OkStatus();
}

absl::Status CheckSocketFolder(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const Folder folder, OpenFolder(path));
  return RefuseSocketFolder(path, folder);
}

namespace {

// Why a file with these properties is not used; OK: it is this user's alone.
absl::Status CheckPrivateFile(const std::string& path, const struct stat& info) {
  if (!S_ISREG(info.st_mode)) {
    return FailedPrecondition("{} is not used, as it is not a regular file: remove it", path);
  }
  if (info.st_uid != geteuid() && info.st_uid != 0) {
    return FailedPrecondition(
        "{} is not used, as it belongs to user {}, and this process runs as user {}: start it as "
        "that user{}",
        path, info.st_uid, geteuid(),
        geteuid() != 0 ? ""
                       : ", or choose a folder on another file system if root has made the file: a "
                         "network file system gives root's files to nobody unless its server "
                         "exports it with no_root_squash");
  }
  if ((info.st_mode & kOthers) != 0) {
    return FailedPrecondition(
        "{} is not used, as users other than its owner can read or write it (mode {:04o}): chmod "
        "600 {}, if no other user has read it",
        path, info.st_mode & 07777, path);
  }
  return absl::OkStatus();
}

// As rename, but EEXIST if something is at `to`.
int MoveToFree(const char* from, const char* to) { return link(from, to) == 0 ? unlink(from) : -1; }

// Makes the file beside `path` and moves it there by `move`, which returns as rename.
absl::Status WriteAndMove(const std::string& path,
                          const std::string& text,
                          int (*move)(const char* from, const char* to)) {
  const OutsideWait wait;  // a slow disk is not a hang
  const auto failed = [&](const char* what) {
    return MakeStatus(IoErrorCode(errno), "cannot {} {}: {}", what, path, std::strerror(errno));
  };
  const std::string fresh = fmt::format("{}.{}.new", path, getpid());
  unlink(fresh.c_str());  // left by a process with this number that was killed here
  UniqueFd fd(open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd.valid()) return failed("make");
  // The umask may have taken away what the owner needs.
  bool written = fchmod(fd.get(), 0600) == 0 &&
                 write(fd.get(), text.data(), text.size()) == std::ssize(text) &&
                 fsync(fd.get()) == 0 && move(fresh.c_str(), path.c_str()) == 0;
  if (written) {
    errno = SyncFolder(std::filesystem::path(path).parent_path());
    written = errno == 0;
  }
  if (written) return absl::OkStatus();
  const absl::Status status =
      errno == EEXIST ? MakeStatus(absl::StatusCode::kAlreadyExists, "{} exists already", path)
                      : failed("write");
  unlink(fresh.c_str());
  return status;
}

}  // namespace

absl::Status WritePrivateFile(const std::string& path, const std::string& text) {
  return WriteAndMove(path, text, &rename);
}

absl::Status WriteNewPrivateFile(const std::string& path, const std::string& text) {
  return WriteAndMove(path, text, &MoveToFree);
}

absl::StatusOr<std::string> ReadPrivateFile(const std::string& path, size_t limit) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd.valid()) {
    return MakeStatus(IoErrorCode(errno), "cannot read {}: {}", path, std::strerror(errno));
  }
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) {
    return MakeStatus(IoErrorCode(errno), "cannot read {}: {}", path, std::strerror(errno));
  }
  TANDEM_RETURN_IF_ERROR(CheckPrivateFile(path, info));
  std::string text(limit, '\0');
  const ssize_t bytes = read(fd.get(), text.data(), limit);
  if (bytes < 0) {
    return MakeStatus(IoErrorCode(errno), "cannot read {}: {}", path, std::strerror(errno));
  }
  text.resize(static_cast<size_t>(bytes));
  return text;
}

}  // namespace tandem
