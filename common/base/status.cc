#include "common/base/status.h"

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "common/base/disk_refusal.h"

namespace tandem {

bool IsDiskFull(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

absl::StatusCode IoErrorCode(int error) {
  if (IsDiskFull(error)) return absl::StatusCode::kResourceExhausted;
  switch (error) {
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return absl::StatusCode::kResourceExhausted;
    case ENOENT:
    case ENOTDIR:
      return absl::StatusCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case EISDIR:
    case EINVAL:
    case ENAMETOOLONG:
    case ELOOP:
      return absl::StatusCode::kInvalidArgument;
    case EIO:
      return absl::StatusCode::kDataLoss;
    default:
      return absl::StatusCode::kInternal;
  }
}

absl::Status MakeFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error) return absl::OkStatus();
  const absl::StatusCode code = IoErrorCode(error.value());
  return MarkedByErrno(
      MakeStatus(
          absl::IsNotFound(absl::Status(code, "")) ? absl::StatusCode::kPermissionDenied : code,
          "cannot make the folder {}: {}", path, error.message()),
      error.value());
}

}  // namespace tandem
