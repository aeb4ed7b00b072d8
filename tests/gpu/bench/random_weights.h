// Random weights made on a device: a figure needs different values, but not particular ones.
#pragma once

#include <cstdint>

#include "common/device/cuda/launch.h"

namespace tandem::testing {

// values[i], i < count, become the numbers of `seed` at `first` + i, even in [-1/16, 1/16).
void LaunchRandomWeights(
    CudaStream stream, float* values, int64_t first, int64_t count, uint64_t seed);

}  // namespace tandem::testing
