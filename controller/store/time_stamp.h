// How a run's files, answers and tables write a moment: RFC 3339 in UTC, with microseconds.
#pragma once

#include <cstdint>
#include <string>

namespace tandem {

// "2026-01-02T03:04:05.000006Z" for microseconds since 1970; "" for 0, which stands for "unknown".
std::string StampText(int64_t micros);

// The inverse; 0 for what is no such text.
int64_t MicrosOfStamp(const std::string& stamp);

}  // namespace tandem
