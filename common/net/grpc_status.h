// Converts between absl::Status and grpc::Status with equal codes and messages. The payload
// tandem.v1.ErrorInfo is sent in the binary error_details of every failed call, but for a lost
// device's: what has none was made by gRPC.
#pragma once

#include <optional>
#include <string>

#include <absl/status/status.h>

namespace grpc {
class Status;
}  // namespace grpc
namespace tandem::v1 {
class ErrorInfo;
}  // namespace tandem::v1

namespace tandem {

grpc::Status ToGrpcStatus(const absl::Status& status);

// Returns Unavailable for lost peers that gRPC reports as UNKNOWN ("Stream removed", "Socket
// closed"), and for a server that could not start a thread for the call, reported as
// RESOURCE_EXHAUSTED.
absl::Status FromGrpcStatus(const grpc::Status& status);

// The same for a call to a service whose every answer is made by ToGrpcStatus, those of workers and
// ClusterService. Returns Unavailable as well for what gRPC itself makes of a connection whose
// bytes were changed on their way (Unknown, Internal, Unimplemented, ResourceExhausted): it is
// broken, and the call may succeed over another. A message that is too large stays
// ResourceExhausted.
absl::Status FromServiceStatus(const grpc::Status& status);

// Attaches the worker that failed, its phase and its last action.
void SetErrorInfo(absl::Status& status, const v1::ErrorInfo& info);
std::optional<v1::ErrorInfo> GetErrorInfo(const absl::Status& status);

// The message, followed by "(rollout 1, phase sync, last action ...)" when an ErrorInfo names a
// worker.
std::string Describe(const absl::Status& status);

}  // namespace tandem
