// Whose failure a status tells of. Travels as a payload; across gRPC as ErrorInfo.origin.
#pragma once

#include <absl/status/status.h>
#include <absl/strings/cord.h>

namespace tandem {

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

}  // namespace tandem
