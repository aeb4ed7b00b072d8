// absl::Status and grpc::Status, 1:1 in code and message. The payload tandem.v1.ErrorInfo travels
// in the binary error_details, both ways.
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

// "Stream removed" and "Socket closed", which gRPC reports as UNKNOWN, are lost peers: Unavailable.
// So is a server that could not start a thread for a call, which gRPC calls RESOURCE_EXHAUSTED.
absl::Status FromGrpcStatus(const grpc::Status& status);

// Attaches who failed, in which phase, and the last thing it did.
void SetErrorInfo(absl::Status& status, const v1::ErrorInfo& info);
std::optional<v1::ErrorInfo> GetErrorInfo(const absl::Status& status);

// The message, followed by "(rollout 1, phase sync, last action ...)" when there is an ErrorInfo.
std::string Describe(const absl::Status& status);

}  // namespace tandem
