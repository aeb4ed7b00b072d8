// Marks errors of a full or failing disk. The run itself is intact, and a retry may succeed once
// the disk is repaired or has space.
#pragma once

#include <cerrno>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/cord.h>

namespace tandem {

// A payload, which Annotate keeps and which crosses gRPC as ErrorInfo.disk_refused.
inline constexpr char kDiskRefusedUrl[] = "tandem.DiskRefused";

// Whether an operator can repair it while the run waits: free space, raise a quota, restore a
// device or mount. A failing file system may have been remounted read-only (EROFS), and a network
// file system may have lost its handles (ESTALE). A file size limit (EFBIG) does not count.
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
