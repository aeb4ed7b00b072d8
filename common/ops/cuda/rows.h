// Launchers of the row kernels: rows by number, norms, sums, SiLU (rows.cu, norms.cu). A row's bits
// are its own: the order of a sum follows from the number of columns alone. Arithmetic and rounding
// are those of cpu/kernels_rows.h, but for the order of a norm's sum.
//
// Matrices are bf16 in device memory, rows aligned to 16 bytes, columns a multiple of 8. No row, no
// launch. Thread-safe as launches are.
#pragma once

#include <cstdint>

#include "common/device/cuda/cuda_stream.h"
#include "common/ops/ops_types.h"

namespace tandem {

// The widest row that a norm takes.
inline constexpr int64_t kWidestRow = 16384;

// Rows of a norm: each row of a matrix is `heads` heads of `cols` elements, and each head is
// normed by itself. The first `first_heads` of them have weight `first`, the others `second`.
struct NormRows {
  int64_t rows = 0;  // of the matrix
  int64_t heads = 1;
  int64_t first_heads = 1;
  int64_t cols = 0;  // of one head
  const void* first = nullptr;
  const void* second = nullptr;
  float eps = 0;
};

// out[i] = in row rows[i]; rows on the device.
void LaunchTakeRows(CudaStream stream, Matrix in, const int32_t* rows, Matrix out);
// `in` and `out` may be the same matrix.
void LaunchRmsNorm(CudaStream stream, const NormRows& norm, Matrix in, Matrix out);
// x += delta, rounded; out = norm of x: the bits of the two ops, one after the other.
void LaunchAddRmsNorm(CudaStream stream, const NormRows& norm, Matrix x, Matrix delta, Matrix out);
void LaunchAdd(CudaStream stream, Matrix x, Matrix delta);
// gate_up [rows, 2 F], out [rows, F].
void LaunchSiluMul(CudaStream stream, Matrix gate_up, Matrix out);

}  // namespace tandem
