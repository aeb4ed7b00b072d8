// Logging to stderr: every line carries role, rank, pid, step and weight version.
// Use spdlog::info/warn/error directly after InitLog(); this header only sets the context.
#pragma once

#include <cstdint>
#include <string>

#include <spdlog/spdlog.h>

namespace tandem {

// Call once, first thing in main. `role` is controller, trainer or rollout; rank -1 prints as "-".
// Level from TANDEM_LOG_LEVEL (trace, debug, info, warn, error), default info.
void InitLog(const std::string& role, int rank);

// What the following lines are about. Thread-safe; -1 prints as "-".
void SetLogStep(int64_t step);
void SetLogVersion(int64_t weight_version);
int64_t LogStep();

}  // namespace tandem
