// A memory plan as JSON: what a run keeps of it, and what machines read.
#pragma once

#include <string>

#include <absl/status/statusor.h>

#include "controller/plan/memory_plan.h"

namespace tandem {

// One object: device_bytes, fits, peak_phase, peak_bytes, sleep_level, recompute, problem, and
// phases with their lines (role, tag, location, bytes, part). On one line.
std::string MemoryPlanToJson(const MemoryPlan& plan);
// InvalidArgument: not what MemoryPlanToJson writes.
absl::StatusOr<MemoryPlan> MemoryPlanFromJson(const std::string& text);

}  // namespace tandem
