// Marks errors of a disk that is full or fails: trying again may help once there is space, without
// anything of the run being wrong.
#pragma once

#include <cerrno>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/cord.h>

namespace tandem {

// A payload, which Annotate keeps and which crosses gRPC as ErrorInfo.disk_refused.
inline constexpr char kDiskRefusedUrl[] = "tandem.DiskRefused";

// Whether an operator can mend it while the run waits: free space, raise a quota, bring a device or
// a mount back. A file system that fails may be mounted to be read alone from then on (EROFS),
// and a network's may forget its files (ESTALE). A limit on the size of files (EFBIG) is none of
// these.
inline bool WaitingMayHelp(int error) {
  return error == ENOSPC || error == EDQUOT || error == EIO || error == EROFS || error == ESTALE;
}

inline absl::Status WithDiskRefused(absl::Status status) {
  if (!status.ok()) status.SetPayload(kDiskRefusedUrl, absl::Cord("refused"));
  return status;
}

// Marks the error of a file operation that ended with the errno `error`, if WaitingMayHelp.
inline absl::Status MarkedByErrno(absl::Status status, int error) {
  return WaitingMayHelp(error) ? WithDiskRefused(std::move(status)) : status;
}

inline bool IsDiskRefused(const absl::Status& status) {
  return status.GetPayload(kDiskRefusedUrl).has_value();
}

}  // namespace tandem
