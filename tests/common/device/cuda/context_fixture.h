// What the tests of a context on the emulator share.
#pragma once

#include <vector>

#include "common/device/cuda/cuda_context.h"
#include "tests/common/device/cuda/calls_of.h"
#include "tests/emulator/emulated_cuda.h"
#include "tests/emulator/emulator.h"

namespace tandem::testing {

inline __global__ void AddTo(const int* in, int* sums) { sums[threadIdx.x] += in[threadIdx.x]; }

inline std::vector<int> Repeated(int value) { return std::vector<int>(32, value); }

}  // namespace tandem::testing
