// How ranks learn of each other's failures before a collective that would otherwise wait for them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/comm/communicator.h"

namespace tandem {

// Collective. Every rank brings the outcome of something local and a number; if all succeeded, the
// numbers of all ranks. Otherwise a rank's own failure or, where it had none, Aborted naming the
// lowest rank that failed in `what`, with FailureOrigin::kAnotherRank.
absl::StatusOr<std::vector<int64_t>> Agree(Communicator& communicator,
                                           const absl::Status& mine,
                                           const std::string& what,
                                           int64_t number = 0);

}  // namespace tandem
