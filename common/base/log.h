// Logging to stderr: every line carries role, rank, pid, step and weight version. All functions may
// be called from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <fmt/core.h>

namespace tandem {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

// Call once, at the start of main. `role` is controller, trainer or rollout; rank -1 prints as "-".
// Level from TANDEM_LOG_LEVEL (trace, debug, info, warn, error), default info.
void InitLog(const std::string& role, int rank);

// Drops lines below `level` from now on.
void SetLogLevel(LogLevel level);

// Step and weight version that the following lines carry; -1 prints as "-".
void SetLogStep(int64_t step);
void SetLogVersion(int64_t weight_version);
int64_t LogStep();

// Formats and writes one line. Only log.cc includes the logging library, because its headers take
// longer to compile than most files that log.
void WriteLog(LogLevel level, fmt::string_view format, fmt::format_args args);

template <typename... Args>
void LogDebug(fmt::format_string<Args...> format, Args&&... args) {
  WriteLog(LogLevel::kDebug, format, fmt::make_format_args(args...));
}
template <typename... Args>
void LogInfo(fmt::format_string<Args...> format, Args&&... args) {
  WriteLog(LogLevel::kInfo, format, fmt::make_format_args(args...));
}
template <typename... Args>
void LogWarn(fmt::format_string<Args...> format, Args&&... args) {
  WriteLog(LogLevel::kWarn, format, fmt::make_format_args(args...));
}
template <typename... Args>
void LogError(fmt::format_string<Args...> format, Args&&... args) {
  WriteLog(LogLevel::kError, format, fmt::make_format_args(args...));
}

}  // namespace tandem
