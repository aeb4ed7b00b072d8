// Whether the files of offloaded memory have room on their disk.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/status.h>

#include "controller/plan/memory_plan.h"

namespace tandem {

// Bytes of the files of one pair.
int64_t OffloadedBytes(const MemoryPlan& plan);

// ResourceExhausted: the files of `pairs` pairs do not fit into `free_bytes` of `directory`; the
// message has both. A trainer makes some of its files as late as the end of its first step.
absl::Status CheckOffloadSpace(const MemoryPlan& plan,
                               int64_t pairs,
                               const std::string& directory,
                               int64_t free_bytes);

// What a process without privileges can still write there; what cannot be found out is no limit.
int64_t FreeDiskBytes(const std::string& directory);

}  // namespace tandem
