// The two status macros, and Annotate().
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

// Whether a failure says that its device can compute nothing any more in this process, whoever asks
// next: a worker ends then, to be started again. Travels as a payload, which Annotate keeps; across
// gRPC it becomes what a caller gets who finds the worker gone (common/net/grpc_status.cc).
inline constexpr char kDeviceLostUrl[] = "tandem.DeviceLost";

inline absl::Status WithDeviceLost(absl::Status status) {
  if (!status.ok()) status.SetPayload(kDeviceLostUrl, absl::Cord("lost"));
  return status;
}

inline bool IsDeviceLost(const absl::Status& status) {
  return status.GetPayload(kDeviceLostUrl).has_value();
}

// Whose failure a status tells of. Travels as a payload; across gRPC as ErrorInfo.origin.
enum class FailureOrigin {
  kHere = 0,         // the worker that answers failed by itself
  kAnotherRank = 1,  // nothing is wrong here: another rank failed, its own answer says why
  kPartner = 2,      // the rollout paired with this trainer did not answer
};

inline constexpr char kFailureOriginUrl[] = "tandem.FailureOrigin";
// Set on whatever a worker itself answered, and never where gRPC found nobody to answer.
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

// False: nobody answered, gRPC made the status up.
inline bool AnsweredByWorker(const absl::Status& status) {
  return status.GetPayload(kErrorInfoUrl).has_value();
}

// What an errno of a local file means as a status.

// ResourceExhausted: disk, quota, file size or open files are used up. NotFound: no such path.
// PermissionDenied: rights, or a read-only file system. InvalidArgument: the path cannot be what
// is meant (a folder, too long, a loop of links). DataLoss: the device fails. Internal: any other.
// Never Unavailable, which says that a peer process is gone and makes the controller recover.
absl::StatusCode IoErrorCode(int error);

// Makes `path` with its parents. PermissionDenied where no folder can be made there, also because
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
