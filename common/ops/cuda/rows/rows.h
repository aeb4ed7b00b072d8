// Launchers of the row kernels: rows by number, norms, sums, SiLU (rows.cu, norms.cu). A row's bits
// are its own: the order of a sum follows from the number of columns alone. Arithmetic and rounding
// are those of cpu/kernels/rows.h, but for the order of a norm's sum.
//
// Matrices are bf16 in device memory, rows aligned to 16 bytes, columns a multiple of 8. No row, no
// launch. Thread-safe as launches are.
#pragma once

#include <cstdint>

#include "common/device/cuda/launch.h"
#include "common/memory/cuda_scratch.h"
#include "common/ops/cuda/rows/row_runs.h"
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

// Launchers of the row kernels of backward: gradients of norms and SiLU, rounding, sums of rows
// (backward_rows.cu, norms_backward.cu). Deterministic: sums over rows go in ascending order, in
// blocks of a fixed number of rows, whatever the launch. Formulas: cpu/kernels/backward.h.
//
// Matrices as in rows.h; fp32 matrices have rows aligned to 16 bytes as well. No row, no launch.

// out = in rounded to bf16.
void LaunchRound(CudaStream stream, FloatMatrix in, Matrix out);
void LaunchSiluMulBackward(CudaStream stream, Matrix gate_up, Matrix dout, Matrix dgate_up);

// Partial results of the heads with weight `first`, and of all: the others' come behind them.
constexpr int64_t FirstNormPartials(const NormRows& norm) {
  return (norm.rows * norm.first_heads + kNormSumRows - 1) / kNormSumRows;
}
constexpr int64_t NormPartials(const NormRows& norm) {
  const int64_t rows = norm.rows * (norm.heads - norm.first_heads);
  return FirstNormPartials(norm) + (rows + kNormSumRows - 1) / kNormSumRows;
}
// Scratch on the device of a norm's backward.
struct NormScratch {
  float* inverse = nullptr;   // [rows * heads]
  float* partials = nullptr;  // [NormPartials, cols]
};
// Where the gradient of a norm goes: dresidual += d(in), or, where dresidual.data is null, din =
// d(in), rounded; din may be dout. dfirst, dsecond [cols] += the gradients of the two weights.
struct NormGradients {
  FloatMatrix dresidual;
  Matrix din;
  float* dfirst = nullptr;
  float* dsecond = nullptr;  // not looked at where all heads are first ones
};
void LaunchRmsNormBackward(CudaStream stream,
                           const NormRows& norm,
                           const NormScratch& scratch,
                           Matrix in,
                           Matrix dout,
                           const NormGradients& gradients);

// sums row runs[i].id += the rows order[runs[i].first .. runs[i].last) of x, in this order; runs
// and order on the device, `count` runs of different ids.
void LaunchAddRowRuns(CudaStream stream,
                      const RowRun* runs,
                      int64_t count,
                      const int32_t* order,
                      FloatMatrix x,
                      float* sums,
                      int64_t sums_stride);

}  // namespace tandem
