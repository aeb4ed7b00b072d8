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

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/process/local_socket.h"

namespace tandem {
namespace {

constexpr mode_t kOthers = 0077, kOthersWrite = 0022;

absl::Status CannotMake(const std::string& path, int error) {
  const absl::StatusCode code = error == ENOENT || error == ENOTDIR
                                    ? absl::StatusCode::kPermissionDenied
                                    : IoErrorCode(error);
  return MakeStatus(code, "cannot make the folder {}: {}", path, std::strerror(error));
}

// Makes `path` with mode 0700 and what is above it as the umask says; true if it was missing.
absl::StatusOr<bool> MakeMissing(const std::string& path) {
  std::filesystem::path parent = std::filesystem::path(path).lexically_normal();
  if (!parent.has_filename()) parent = parent.parent_path();  // "a/b/" names a/b
  parent = parent.parent_path();
  std::error_code error;
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (error) return CannotMake(path, error.value());
  // The second change gives the owner what an odd umask took.
  if (mkdir(path.c_str(), 0700) == 0 && chmod(path.c_str(), 0700) == 0) return true;
  if (errno == EEXIST) return false;
  return CannotMake(path, errno);
}

// A folder that existed, and what can be done with it.
struct Folder {
  UniqueFd fd;
  struct stat info {};

  bool open_to(mode_t bits) const { return (info.st_mode & bits) != 0; }
  bool ours() const { return info.st_uid == geteuid() || geteuid() == 0; }
  // Whether the mode is now without `bits`.
  bool Close(mode_t bits) const { return fchmod(fd.get(), info.st_mode & 07777 & ~bits) == 0; }
};

absl::StatusOr<Folder> OpenFolder(const std::string& path) {
  Folder folder{.fd = UniqueFd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC))};
  if (!folder.fd.valid() || fstat(folder.fd.get(), &folder.info) != 0) {
    return CannotMake(path, errno);
  }
  return folder;
}

absl::Status WritableByOthers(const std::string& path, const Folder& folder) {
  return MakeStatus(absl::StatusCode::kPermissionDenied,
                    "other users can write in {} (mode {:04o}, owner {}): choose a folder below "
                    "it, or take that right away with chmod go-w {}",
                    path, folder.info.st_mode & 07777, folder.info.st_uid, path);
}

}  // namespace

absl::Status MakePrivateFolder(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const bool made, MakeMissing(path));
  if (made) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const Folder folder, OpenFolder(path));
  if (!folder.ours() && folder.info.st_uid != 0) {
    return MakeStatus(absl::StatusCode::kPermissionDenied,
                      "{} belongs to another user ({}), who could read and replace what is kept "
                      "there: choose another folder",
                      path, folder.info.st_uid);
  }
  if (!folder.open_to(kOthers)) return absl::OkStatus();
  if (folder.ours() && folder.Close(kOthers)) {
    LogInfo("{} was open to other users (mode {:04o}): closed it, now {:04o}", path,
            folder.info.st_mode & 07777, folder.info.st_mode & 07777 & ~kOthers);
    return absl::OkStatus();
  }
  if (folder.open_to(kOthersWrite)) return WritableByOthers(path, folder);
  LogWarn("{} can be read by other users (mode {:04o}), and that cannot be changed", path,
          folder.info.st_mode & 07777);
  return absl::OkStatus();
}

absl::Status MakeSocketFolder(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const bool made, MakeMissing(path));
  if (made) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const Folder folder, OpenFolder(path));
  if (!folder.open_to(kOthersWrite) || folder.open_to(S_ISVTX)) return absl::OkStatus();
  if (!folder.ours() || !folder.Close(kOthersWrite)) return WritableByOthers(path, folder);
  LogInfo("other users could write in {} (mode {:04o}): took that right away", path,
          folder.info.st_mode & 07777);
  return absl::OkStatus();
}

absl::Status WritePrivateFile(const std::string& path, const std::string& text) {
  const auto failed = [&](const char* what) {
    return MakeStatus(IoErrorCode(errno), "cannot {} {}: {}", what, path, std::strerror(errno));
  };
  const std::string fresh = fmt::format("{}.{}.new", path, getpid());
  unlink(fresh.c_str());  // left by a process with this number that was killed here
  UniqueFd fd(open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd.valid()) return failed("make");
  // The umask may have taken away what the owner needs.
  const bool written = fchmod(fd.get(), 0600) == 0 &&
                       write(fd.get(), text.data(), text.size()) == std::ssize(text) &&
                       rename(fresh.c_str(), path.c_str()) == 0;
  if (written) return absl::OkStatus();
  const absl::Status status = failed("write");
  unlink(fresh.c_str());
  return status;
}

absl::StatusOr<std::string> ReadPrivateFile(const std::string& path, size_t limit) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd.valid()) {
    return MakeStatus(IoErrorCode(errno), "cannot read {}: {}", path, std::strerror(errno));
  }
  struct stat info {};
  if (fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode) || (info.st_mode & kOthers) != 0 ||
      (info.st_uid != geteuid() && info.st_uid != 0)) {
    return FailedPrecondition(
        "{} is not a file that its owner alone can read (mode {:04o}, owner {}): chmod 600 {}, if "
        "it is yours and no other user has read it",
        path, info.st_mode & 07777, info.st_uid, path);
  }
  std::string text(limit, '\0');
  const ssize_t bytes = read(fd.get(), text.data(), limit);
  if (bytes < 0) {
    return MakeStatus(IoErrorCode(errno), "cannot read {}: {}", path, std::strerror(errno));
  }
  text.resize(static_cast<size_t>(bytes));
  return text;
}

}  // namespace tandem
