// How much one request may carry.
#pragma once

#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

#include "controller/workers/rollout_client.h"

namespace tandem {

// Our messages stay below it; a receiver takes twice as much (common/net/server.cc).
inline constexpr int64_t kMaxRequestBytes = int64_t{4} << 20;

// The group as requests whose messages have at most `max_bytes` each, its samples in order, all
// with its request id. One, where that is enough or where nothing is continued. InvalidArgument: a
// single sample is too large.
absl::StatusOr<std::vector<GroupRequest>> SplitRequest(GroupRequest group, int64_t max_bytes);

}  // namespace tandem
