// Launchers of the matrix kernels (gemm.cu, column_sums.cu).
#pragma once

#include <cstdint>

#include "common/device/cuda/launch.h"
#include "common/ops/cuda/linear/gemm.h"
#include "common/ops/cuda/linear/gemm_tile.h"

namespace tandem::cuda {

// `tile` is any for kForward, k64x64 or k128x128 for the other kinds; kForward gives kBf16 or
// kFloat, kInput kBf16 or kFloatAdd, kWeights kFloatAdd. m, n, k > 0.
void LaunchGemm(const Gemm& gemm, GemmTile tile, CudaStream stream);

// sums [cols] += column sums of in [rows, cols], bf16: 32 partial sums, of rows i, i + 32, ...,
// each in ascending order, then those in ascending order.
void LaunchColumnSums(
    const void* in, int64_t rows, int64_t cols, int64_t stride, float* sums, CudaStream stream);

}  // namespace tandem::cuda
