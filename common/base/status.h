// Helpers for absl::Status: formatted errors, context, failure payloads, errno, and two macros.
#pragma once

#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/cord.h>
#include <fmt/format.h>

namespace tandem {

// Prefixes the message with `context` and keeps code and payloads. OK stays OK.
inline absl::Status Annotate(const absl::Status& status, const std::string& context) {
  if (status.ok()) return status;
  absl::Status annotated(status.code(), context + ": " + std::string(status.message()));
  status.ForEachPayload([&annotated](absl::string_view url, const absl::Cord& payload) {
    annotated.SetPayload(url, payload);
  });
  return annotated;
}

// Builds a status from a format string: MakeStatus(absl::StatusCode::kDataLoss, "{} of {}", a, b).
template <typename... Args>
absl::Status MakeStatus(absl::StatusCode code, fmt::format_string<Args...> format, Args&&... args) {
  return absl::Status(code, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
absl::Status InvalidArgument(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(absl::StatusCode::kInvalidArgument, format, std::forward<Args>(args)...);
}
template <typename... Args>
absl::Status FailedPrecondition(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(absl::StatusCode::kFailedPrecondition, format, std::forward<Args>(args)...);
}
template <typename... Args>
absl::Status Internal(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(absl::StatusCode::kInternal, format, std::forward<Args>(args)...);
}

// Marks failures after which this process can no longer compute on its device, so that the worker
// ends and is restarted. Stored as a payload, which Annotate keeps. Across gRPC it becomes
// Unavailable, as if the worker had already ended (common/net/grpc_status.cc).
inline constexpr char kDeviceLostUrl[] = "tandem.DeviceLost";

inline absl::Status WithDeviceLost(absl::Status status) {
  if (!status.ok()) status.SetPayload(kDeviceLostUrl, absl::Cord("lost"));
  return status;
}

inline bool IsDeviceLost(const absl::Status& status) {
  return status.GetPayload(kDeviceLostUrl).has_value();
}

// The process that caused a failure. Stored as a payload; sent over gRPC as ErrorInfo.origin.
enum class FailureOrigin {
  kHere = 0,         // the worker that answers
  kAnotherRank = 1,  // another rank, whose own answer has the reason
  kPartner = 2,      // the rollout paired with this trainer, which did not answer
};

inline constexpr char kFailureOriginUrl[] = "tandem.FailureOrigin";
// Present on all errors that a process of the run answered, absent on those that gRPC generated.
inline constexpr char kErrorInfoUrl[] = "type.googleapis.com/tandem.v1.ErrorInfo";

inline absl::Status WithOrigin(absl::Status status, FailureOrigin origin) {
  if (status.ok()) return status;
  if (origin == FailureOrigin::kHere) {
    status.ErasePayload(kFailureOriginUrl);
  } else {
    status.SetPayload(kFailureOriginUrl,
                      absl::Cord(origin == FailureOrigin::kPartner ? "partner" : "another rank"));
  }
  return status;
}

inline FailureOrigin OriginOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kFailureOriginUrl);
  if (!payload) return FailureOrigin::kHere;
  return *payload == "partner" ? FailureOrigin::kPartner : FailureOrigin::kAnotherRank;
}

// False if gRPC generated the status because no worker answered.
inline bool AnsweredByWorker(const absl::Status& status) {
  return status.GetPayload(kErrorInfoUrl).has_value();
}

// Maps the errno of a file operation to a status code. ResourceExhausted: disk, quota, file size or
// open files are used up. NotFound: no such path. PermissionDenied: rights, or a read-only file
// system. InvalidArgument: the path cannot name a file (a folder, too long, a loop of links).
// DataLoss: the device fails. Internal: any other. Never Unavailable, which reports a lost peer
// process and makes the controller start a recovery.
absl::StatusCode IoErrorCode(int error);

// Creates `path` with its parents. PermissionDenied if no folder can be created there, also because
// the path leads through a file or a system folder; ResourceExhausted: the disk is full.
absl::Status MakeFolder(const std::string& path);

// Whether the disk, a quota or a file size limit is full.
bool IsDiskFull(int error);

}  // namespace tandem

#define TANDEM_CONCAT_INNER(a, b) a##b
#define TANDEM_CONCAT(a, b) TANDEM_CONCAT_INNER(a, b)

#define TANDEM_RETURN_IF_ERROR(expr)                 \
  do {                                               \
    absl::Status tandem_status_ = (expr);            \
    if (!tandem_status_.ok()) return tandem_status_; \
  } while (false)

#define TANDEM_ASSIGN_OR_RETURN(lhs, expr) \
  TANDEM_ASSIGN_OR_RETURN_IMPL(TANDEM_CONCAT(tandem_result_, __LINE__), lhs, expr)
#define TANDEM_ASSIGN_OR_RETURN_IMPL(result, lhs, expr) \
  auto result = (expr);                                 \
  if (!result.ok()) return result.status();             \
  lhs = std::move(result).value()
