// exp with the same bits whatever the C library.
#pragma once

#include <cmath>

namespace tandem {

// exp(x), computed in double and rounded once. As FixedExp of the losses
// (trainer_worker/losses/fixed_math.h), which is the same for tensors.
inline float RoundedExp(float x) { return static_cast<float>(std::exp(static_cast<double>(x))); }

}  // namespace tandem
