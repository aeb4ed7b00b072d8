// Launcher of copy_rows.cu.
#pragma once

#include <cstdint>

#include "common/device/cuda/launch.h"

namespace tandem::cuda {

// Rows of a matrix that are `stride` bytes apart.
struct RowBytes {
  void* data = nullptr;
  int64_t stride = 0;
};

// Copies the first `row_bytes` of `rows` rows of `from`, and zeroes the following rows of `to` up
// to `filled`. Addresses, strides and row_bytes are multiples of 2; multiples of 16 are faster.
void LaunchCopyRows(
    RowBytes from, RowBytes to, int64_t row_bytes, int64_t rows, int64_t filled, CudaStream stream);

}  // namespace tandem::cuda
