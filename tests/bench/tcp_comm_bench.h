// The part of tandem-comm-bench that measures groups over TCP.
#pragma once

#include <cstdint>

namespace tandem {

// Prints the rates of two ranks that exchange `bytes` in all. Returns the program's exit code.
int BenchTcp(int64_t bytes);

}  // namespace tandem
