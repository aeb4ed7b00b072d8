// Launcher of copy_rows.cu.
#pragma once

#include <cstdint>

#include "common/device/cuda/launch.h"

namespace tandem::cuda {

// Rows of a matrix, the next one `stride` bytes further.
struct RowBytes {
  void* data = nullptr;
  int64_t stride = 0;
};

// The first `row_bytes` of `rows` rows of `from`, and zeros for the rows of `to` from there up to
// `filled`. Addresses, strides and row_bytes are multiples of 2; of 16, it is faster.
void LaunchCopyRows(
    RowBytes from, RowBytes to, int64_t row_bytes, int64_t rows, int64_t filled, CudaStream stream);

}  // namespace tandem::cuda
