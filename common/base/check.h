// TANDEM_CHECK is for bugs in this process only; never for input, peers, disk or memory.
#pragma once

#include <string>

namespace tandem {
// Prints the condition, place and message to stderr and aborts.
[[noreturn]] void CheckFailed(const char* condition,
                              const char* file,
                              int line,
                              const std::string& message);
}  // namespace tandem

#define TANDEM_CHECK(condition, message) \
  ((condition) ? (void)0 : ::tandem::CheckFailed(#condition, __FILE__, __LINE__, (message)))
