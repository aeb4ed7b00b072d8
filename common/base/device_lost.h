// Whether a failure says that its device can compute nothing any more in this process, whoever asks
// next: a worker ends then, to be started again. Travels as a payload, which Annotate keeps; across
// gRPC it becomes what a caller gets who finds the worker gone (common/net/grpc_status.cc).
#pragma once

#include <absl/status/status.h>
#include <absl/strings/cord.h>

namespace tandem {

inline constexpr char kDeviceLostUrl[] = "tandem.DeviceLost";

inline absl::Status WithDeviceLost(absl::Status status) {
  if (!status.ok()) status.SetPayload(kDeviceLostUrl, absl::Cord("lost"));
  return status;
}

inline bool IsDeviceLost(const absl::Status& status) {
  return status.GetPayload(kDeviceLostUrl).has_value();
}

}  // namespace tandem
