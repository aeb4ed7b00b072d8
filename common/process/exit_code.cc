#include "common/process/exit_code.h"

#include "common/base/disk_refusal.h"

namespace tandem {

int ExitCodeAt(FailedAt stage, const absl::Status& status) {
  if (status.ok()) return kExitDone;
  // A place that is there and cannot be used, whichever key names it.
  if (absl::IsPermissionDenied(status) || absl::IsResourceExhausted(status)) return kExitIoError;
  // A disk that fails says nothing of what is on it.
  if (IsDiskRefused(status)) return kExitIoError;
  if (stage == FailedAt::kConfig) {
    return absl::IsNotFound(status) ? kExitNoInput : kExitRefused;
  }
  const bool inputs = stage == FailedAt::kInputs;
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
      return inputs ? kExitDataError : kExitRefused;
    case absl::StatusCode::kNotFound:
      return inputs ? kExitNoInput : kExitRefused;
    case absl::StatusCode::kAlreadyExists:  // another process uses the directory or the address
      return kExitRefused;
    case absl::StatusCode::kOutOfRange:  // dynamic sampling used up its batches: a restart does not
                                         // help
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kFailedPrecondition:
      return inputs ? kExitDataError : kExitInternal;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return kExitPeerLost;
    default:
      return kExitInternal;
  }
}

}  // namespace tandem
