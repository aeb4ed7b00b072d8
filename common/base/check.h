// TANDEM_CHECK reports bugs of this process. Errors of input, peers, disk or memory are statuses.
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
