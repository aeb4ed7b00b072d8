// Units of memory.
#pragma once

#include <cstdint>

namespace tandem::testing {

inline constexpr int64_t kMiB = int64_t{1} << 20;

}  // namespace tandem::testing
