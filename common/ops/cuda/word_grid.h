// Which word of eight elements a thread of an elementwise kernel has: blocks along x are rows, so
// that no index is divided. Included by kernels.
#pragma once

#include "common/device/cuda/kernel.h"

namespace tandem {

inline constexpr int kWordThreads = 128;

inline LaunchShape WordGrid(int64_t rows, int64_t cols) {
  const auto words = static_cast<unsigned>(cols / 8);
  return {.grid_x = static_cast<unsigned>(rows),
          .grid_y = (words + kWordThreads - 1) / kWordThreads,
          .threads = kWordThreads};
}

// The first column of the thread's word.
__device__ __forceinline__ int WordColumn() {
  return static_cast<int>(blockIdx.y * kWordThreads + threadIdx.x) * 8;
}

}  // namespace tandem
