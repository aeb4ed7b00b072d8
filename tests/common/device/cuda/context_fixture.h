// What the tests of a context on the emulator share.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "common/device/cuda/cuda_context.h"
#include "common/device/cuda/emulator/emulated_cuda.h"
#include "common/device/cuda/kernel.h"

namespace tandem::testing {

inline __global__ void AddTo(const int* in, int* sums) { sums[threadIdx.x] += in[threadIdx.x]; }

inline std::vector<int> Repeated(int value) { return std::vector<int>(32, value); }

inline int64_t Calls(const emulator::EmulatedCuda& cuda, const std::string& name) {
  const std::vector<std::string> calls = cuda.calls();
  return std::count(calls.begin(), calls.end(), name);
}

}  // namespace tandem::testing
