// The number of threads that work on one row of a norm. It depends on the row's width alone,
// because it determines the order of the row's sum. Included by kernels.
#pragma once

#include "common/device/cuda/kernel.h"
#include "common/ops/cuda/rows/rows.h"

namespace tandem {

// `kLanes` threads of a block share a row, and each has up to `kHeld` words of eight elements:
// words lane, lane + kLanes, ... Rows with fewer threads than a warp share one; blocks have at
// least 128 threads.
template <int kLanes, int kHeld>
struct RowShape {
  static constexpr int kThreads = kLanes < 128 ? 128 : kLanes;
  static constexpr int kRows = kThreads / kLanes;  // of a block
  static constexpr int kWords = kLanes * kHeld;    // of a row, at most

  // The row's sum, in every one of its threads: lanes are added in a butterfly, then warps in
  // ascending order.
  static __device__ __forceinline__ float Sum(float value) {
    constexpr int kInWarp = kLanes < 32 ? kLanes : 32;
    TANDEM_UNROLL
    for (int lanes = kInWarp / 2; lanes > 0; lanes /= 2) value += ShuffleXor(value, lanes);
    if constexpr (kLanes > 32) {
      TANDEM_SHARED(warps, float[kLanes / 32]);
      if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
      __syncthreads();
      value = warps[0];
      TANDEM_UNROLL
      for (int warp = 1; warp < kLanes / 32; ++warp) value += warps[warp];
    }
    return value;
  }
};

// Calls run(RowShape) with the shape of rows of `cols` elements, at most kWidestRow.
template <typename Run>
void ForRowShape(int64_t cols, Run&& run) {
  if (cols <= 64) return run(RowShape<8, 1>());
  if (cols <= 128) return run(RowShape<16, 1>());
  if (cols <= 256) return run(RowShape<32, 1>());
  if (cols <= 1024) return run(RowShape<128, 1>());
  if (cols <= 2048) return run(RowShape<128, 2>());
  if (cols <= 8192) return run(RowShape<256, 4>());
  run(RowShape<512, 4>());
}

// The row and the lane of a thread. Threads beyond the last row repeat that row, because shuffles
// need all threads, and store nothing.
template <typename Shape>
struct RowThread {
  int64_t row;
  int lane;
  bool stores;

  __device__ __forceinline__ explicit RowThread(int64_t rows) {
    constexpr int kLanes = Shape::kThreads / Shape::kRows;
    row = int64_t{blockIdx.x} * Shape::kRows + static_cast<int>(threadIdx.x) / kLanes;
    lane = static_cast<int>(threadIdx.x) % kLanes;
    stores = row < rows;
    if (!stores) row = rows - 1;
  }
};

// Which word of eight elements a thread of an elementwise kernel handles: blocks along x are rows,
// so that no index needs a division. Included by kernels.
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
