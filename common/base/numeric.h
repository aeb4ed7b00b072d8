// Small numeric functions.
#pragma once

#include <cmath>
#include <cstdint>

namespace tandem {

// The smallest multiple of `unit` that is not below `value`; both at least 0, `unit` not 0.
constexpr int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// exp(x), computed in double and rounded once, so that its bits do not depend on the C library.
// PortableExp of the losses (trainer_worker/losses/portable_math.h) is the same for tensors.
inline float RoundedExp(float x) { return static_cast<float>(std::exp(static_cast<double>(x))); }

}  // namespace tandem
