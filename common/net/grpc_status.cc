#include "common/net/grpc_status.h"

#include <fmt/format.h>
#include <grpcpp/support/status.h>

#include "common/base/disk_refusal.h"
#include "common/base/status.h"
#include "tandem/v1/types.pb.h"

namespace tandem {
namespace {

#define TANDEM_SAME_CODE(grpc_code, absl_code)                   \
  static_assert(static_cast<int>(grpc::StatusCode::grpc_code) == \
                static_cast<int>(absl::StatusCode::absl_code))
TANDEM_SAME_CODE(OK, kOk);
TANDEM_SAME_CODE(CANCELLED, kCancelled);
TANDEM_SAME_CODE(UNKNOWN, kUnknown);
TANDEM_SAME_CODE(INVALID_ARGUMENT, kInvalidArgument);
TANDEM_SAME_CODE(DEADLINE_EXCEEDED, kDeadlineExceeded);
TANDEM_SAME_CODE(NOT_FOUND, kNotFound);
TANDEM_SAME_CODE(ALREADY_EXISTS, kAlreadyExists);
TANDEM_SAME_CODE(PERMISSION_DENIED, kPermissionDenied);
TANDEM_SAME_CODE(UNAUTHENTICATED, kUnauthenticated);
TANDEM_SAME_CODE(RESOURCE_EXHAUSTED, kResourceExhausted);
TANDEM_SAME_CODE(FAILED_PRECONDITION, kFailedPrecondition);
TANDEM_SAME_CODE(ABORTED, kAborted);
TANDEM_SAME_CODE(OUT_OF_RANGE, kOutOfRange);
TANDEM_SAME_CODE(UNIMPLEMENTED, kUnimplemented);
TANDEM_SAME_CODE(INTERNAL, kInternal);
TANDEM_SAME_CODE(UNAVAILABLE, kUnavailable);
TANDEM_SAME_CODE(DATA_LOSS, kDataLoss);
#undef TANDEM_SAME_CODE

std::string RoleName(v1::Role role) {
  switch (role) {
    case v1::ROLE_CONTROLLER:
      return "controller";
    case v1::ROLE_TRAINER:
      return "trainer";
    case v1::ROLE_ROLLOUT:
      return "rollout";
    default:
      return "worker";
  }
}

bool IsLostPeer(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNKNOWN &&
         (status.error_message().find("Stream removed") != std::string::npos ||
          status.error_message().find("Socket closed") != std::string::npos);
}

// Whether the server could not start a thread for a call, which then never ran. gRPC reports this
// by a fixed message only.
bool PeerHadNoThread(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED &&
         status.error_message() == "Server Threadpool Exhausted";
}

// Whether a message was larger than either side takes, as it will be over any connection. gRPC
// reports this by its text only ("Received message larger than max (9000000 vs. 8388608)").
bool IsTooLarge(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED &&
         status.error_message().find("message larger than max") != std::string::npos;
}

// Whether gRPC may have given this status to a call whose bytes it could not make sense of, or
// which arrived as another one.
bool MayBeGarbage(const grpc::Status& status) {
  const grpc::StatusCode code = status.error_code();
  return code == grpc::StatusCode::UNKNOWN || code == grpc::StatusCode::INTERNAL ||
         code == grpc::StatusCode::UNIMPLEMENTED ||
         (code == grpc::StatusCode::RESOURCE_EXHAUSTED && !IsTooLarge(status));
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // Sent without ErrorInfo, as if the worker had already ended, because it is about to.
  if (IsDeviceLost(status)) {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE,
                        fmt::format("its device failed; the worker exits and is restarted: {}",
                                    std::string(status.message())));
  }
  v1::ErrorInfo info = GetErrorInfo(status).value_or(v1::ErrorInfo());
  info.set_origin(static_cast<v1::ErrorInfo::Origin>(OriginOf(status)));
  info.set_disk_refused(IsDiskRefused(status));
  (void)info.mutable_worker();  // there, if only empty, so that there are details at all
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()),
                      info.SerializeAsString());
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  if (PeerHadNoThread(status)) {
    return absl::UnavailableError(
        "the peer could not start a thread for the call; look at its log and at the limits on "
        "processes and memory of its host");
  }
  const absl::StatusCode code = IsLostPeer(status)
                                    ? absl::StatusCode::kUnavailable
                                    : static_cast<absl::StatusCode>(status.error_code());
  absl::Status result(code, status.error_message());
  if (v1::ErrorInfo info;
      !status.error_details().empty() && info.ParseFromString(status.error_details())) {
    result.SetPayload(kErrorInfoUrl, absl::Cord(status.error_details()));
    const FailureOrigin origin = info.origin() == v1::ErrorInfo::ANOTHER_RANK
                                     ? FailureOrigin::kAnotherRank
                                 : info.origin() == v1::ErrorInfo::PARTNER ? FailureOrigin::kPartner
                                                                           : FailureOrigin::kHere;
    result = WithOrigin(std::move(result), origin);
    return info.disk_refused() ? WithDiskRefused(std::move(result)) : result;
  }
  return result;
}

absl::Status FromServiceStatus(const grpc::Status& status) {
  absl::Status result = FromGrpcStatus(status);
  if (!MayBeGarbage(status) || absl::IsUnavailable(result)) return result;
  if (AnsweredByWorker(result)) return result;
  return MakeStatus(absl::StatusCode::kUnavailable, "the connection broke; gRPC says {}: {}",
                    absl::StatusCodeToString(result.code()), std::string(result.message()));
}

void SetErrorInfo(absl::Status& status, const v1::ErrorInfo& info) {
  if (!status.ok()) status.SetPayload(kErrorInfoUrl, absl::Cord(info.SerializeAsString()));
}

std::optional<v1::ErrorInfo> GetErrorInfo(const absl::Status& status) {
  const auto payload = status.GetPayload(kErrorInfoUrl);
  v1::ErrorInfo info;
  if (!payload || !info.ParseFromString(std::string(*payload))) return std::nullopt;
  return info;
}

std::string Describe(const absl::Status& status) {
  std::string message = status.ok() ? "OK" : std::string(status.message());
  const std::optional<v1::ErrorInfo> info = GetErrorInfo(status);
  if (!info || info->worker().role() == v1::ROLE_UNSPECIFIED) return message;
  return fmt::format("{} ({} {}, phase {}, last action: {})", message,
                     RoleName(info->worker().role()), info->worker().rank(),
                     info->phase().empty() ? "-" : info->phase(),
                     info->last_action().empty() ? "-" : info->last_action());
}

}  // namespace tandem
