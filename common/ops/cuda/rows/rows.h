// Launchers of the row kernels: rows by number, norms, sums, SiLU (rows.cu, norms.cu). A row's bits
// do not depend on other rows: the order of a sum depends on the number of columns alone.
// Arithmetic and rounding are those of cpu/kernels/rows.h, except for the order of a norm's sum.
//
// Matrices are bf16 in device memory, with rows aligned to 16 bytes and columns that are a multiple
// of 8. Without rows nothing is launched. As thread-safe as launches are.
#pragma once

#include <cstdint>

#include "common/device/cuda/launch.h"
#include "common/memory/cuda_scratch.h"
#include "common/ops/cuda/rows/row_runs.h"
#include "common/ops/ops_types.h"

namespace tandem {

// The widest row of which a norm can be computed.
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
// x += delta, rounded; out = norm of x. Gives the bits of the two ops in sequence.
void LaunchAddRmsNorm(CudaStream stream, const NormRows& norm, Matrix x, Matrix delta, Matrix out);
void LaunchAdd(CudaStream stream, Matrix x, Matrix delta);
// gate_up [rows, 2 F], out [rows, F].
void LaunchSiluMul(CudaStream stream, Matrix gate_up, Matrix out);

// Launchers of the backward row kernels: gradients of norms and SiLU, rounding, sums of rows
// (backward_rows.cu, norms_backward.cu). Deterministic: sums over rows go in ascending order, in
// blocks of a fixed number of rows, for every launch. Formulas: cpu/kernels/backward.h.
//
// Matrices as above; fp32 matrices have rows aligned to 16 bytes too. Without rows nothing is
// launched.

// out = in rounded to bf16.
void LaunchRound(CudaStream stream, FloatMatrix in, Matrix out);
void LaunchSiluMulBackward(CudaStream stream, Matrix gate_up, Matrix dout, Matrix dgate_up);

// Partial results of the heads with weight `first`; those of the other heads follow them.
constexpr int64_t FirstNormPartials(const NormRows& norm) {
  return (norm.rows * norm.first_heads + kNormSumRows - 1) / kNormSumRows;
}
constexpr int64_t NormPartials(const NormRows& norm) {
  const int64_t rows = norm.rows * (norm.heads - norm.first_heads);
  return FirstNormPartials(norm) + (rows + kNormSumRows - 1) / kNormSumRows;
}
// Scratch on the device for a norm's backward.
struct NormScratch {
  float* inverse = nullptr;   // [rows * heads]
  float* partials = nullptr;  // [NormPartials, cols]
};
// Where the gradients of a norm are stored: dresidual += d(in) or, if dresidual.data is null, din =
// d(in), rounded; din may be dout. dfirst, dsecond [cols] += the gradients of the two weights.
struct NormGradients {
  FloatMatrix dresidual;
  Matrix din;
  float* dfirst = nullptr;
  float* dsecond = nullptr;  // not accessed if all heads are first ones
};
void LaunchRmsNormBackward(CudaStream stream,
                           const NormRows& norm,
                           const NormScratch& scratch,
                           Matrix in,
                           Matrix dout,
                           const NormGradients& gradients);

// Row runs[i].id of sums += rows order[runs[i].first .. runs[i].last) of x, in this order; runs and
// order are on the device, with `count` runs of different ids.
void LaunchAddRowRuns(CudaStream stream,
                      const RowRun* runs,
                      int64_t count,
                      const int32_t* order,
                      FloatMatrix x,
                      float* sums,
                      int64_t sums_stride);

}  // namespace tandem
