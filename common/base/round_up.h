// Sizes in whole units.
#pragma once

#include <cstdint>

namespace tandem {

// The smallest multiple of `unit` that is not below `value`; both at least 0, `unit` not 0.
constexpr int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace tandem
