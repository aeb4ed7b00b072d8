#include "common/process/files/confined_path.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

#include <fcntl.h>
#include <fmt/ranges.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/status.h"
#include "common/process/local_socket.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

using Parts = std::vector<std::string>;

Parts PartsOf(const fs::path& path) {
  Parts parts;
  for (const fs::path& part : path) {
    if (!part.empty() && part != "/" && part != ".") parts.push_back(part.string());
  }
  return parts;
}

// The parts of `path` that follow those of `folder`; nothing if it does not begin with them. A ".."
// in the folder's own name is the configuration's, and is compared as text.
std::optional<Parts> Beneath(const fs::path& path, const std::string& folder) {
  const Parts whole = PartsOf(fs::absolute(path));
  const Parts base = PartsOf(fs::absolute(folder));
  if (whole.size() < base.size()) return std::nullopt;
  if (!std::equal(base.begin(), base.end(), whole.begin())) return std::nullopt;
  return Parts(whole.begin() + static_cast<ptrdiff_t>(base.size()), whole.end());
}

// The outcome of a lookup: 0, or an errno. EXDEV: it leads outside.
int LookUpWhole(int folder, const Parts& parts) {
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  const std::string relative = fmt::format("{}", fmt::join(parts, "/"));
  const UniqueFd fd(
      static_cast<int>(syscall(SYS_openat2, folder, relative.c_str(), &how, sizeof(how))));
  return fd.valid() ? 0 : errno;
}

int LookUpByPart(int folder, const Parts& parts) {
  UniqueFd at(fcntl(folder, F_DUPFD_CLOEXEC, 0));
  if (!at.valid()) return errno;
  for (const std::string& part : parts) {
    UniqueFd next(openat(at.get(), part.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat info {};
    if (!next.valid() || fstat(next.get(), &info) != 0) return errno;
    if (S_ISLNK(info.st_mode)) return EXDEV;
    at = std::move(next);
  }
  return 0;
}

// Filters of system calls answer EPERM or ENOSYS for what they do not know; openat2 itself gives
// neither for O_PATH.
bool IsMissing(int error) { return error == ENOSYS || error == EPERM; }

int LookUp(int folder, const Parts& parts, PathLookup lookup) {
  if (lookup == PathLookup::kByPart) return LookUpByPart(folder, parts);
  int error = LookUpWhole(folder, parts);
  // EAGAIN: something was renamed meanwhile, so that ".." could not be followed safely.
  for (int again = 0; error == EAGAIN && again < 8; ++again) error = LookUpWhole(folder, parts);
  return IsMissing(error) ? LookUpByPart(folder, parts) : error;
}

// Looks up `parts`, or as many of the first ones as there are.
int LookUpWhatExists(const std::string& folder, Parts parts, PathLookup lookup) {
  const UniqueFd root(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) return errno == ENOENT ? 0 : errno;  // nothing is there to lead outside
  for (; !parts.empty(); parts.pop_back()) {
    const int error = LookUp(root.get(), parts, lookup);
    if (error != ENOENT) return error;
  }
  return 0;
}

}  // namespace

absl::Status CheckConfined(const std::string& what,
                           const std::string& path,
                           const std::vector<std::string>& folders,
                           PathLookup lookup) {
  const auto refuse = [&](absl::StatusCode code, const std::string& why) {
    return MakeStatus(
        code,
        "{} {} {}: calls may name paths inside {} only; to use another folder, set it "
        "in the run's configuration",
        what, path, why, fmt::join(folders, ", "));
  };
  if (path.empty() || path.find('\0') != std::string::npos) {
    return refuse(absl::StatusCode::kInvalidArgument, "is not a path");
  }
  for (const std::string& folder : folders) {
    if (folder.empty()) continue;
    const std::optional<Parts> parts = Beneath(path, folder);
    if (!parts) continue;
    if (std::find(parts->begin(), parts->end(), "..") != parts->end()) {
      return refuse(absl::StatusCode::kInvalidArgument, "has a part \"..\"");
    }
    const int error = LookUpWhatExists(folder, *parts, lookup);
    if (error == 0) return absl::OkStatus();
    if (error == EXDEV || error == ELOOP) {
      return refuse(absl::StatusCode::kPermissionDenied, "leads outside over a symbolic link");
    }
    return MakeStatus(IoErrorCode(error), "{} {}: {}", what, path, std::strerror(error));
  }
  return refuse(absl::StatusCode::kInvalidArgument, "is outside");
}

}  // namespace tandem
