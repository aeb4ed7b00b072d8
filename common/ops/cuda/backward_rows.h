// Launchers of the row kernels of backward: gradients of norms and SiLU, rounding, sums of rows
// (backward_rows.cu, norms_backward.cu). Deterministic: sums over rows go in ascending order, in
// blocks of a fixed number of rows, whatever the launch. Formulas: cpu/kernels_backward.h.
//
// Matrices as in rows.h; fp32 matrices have rows aligned to 16 bytes as well. No row, no launch.
#pragma once

#include <cstdint>

#include "common/device/cuda/cuda_stream.h"
#include "common/memory/cuda_scratch.h"
#include "common/ops/cuda/row_runs.h"
#include "common/ops/cuda/rows.h"
#include "common/ops/ops_types.h"

namespace tandem {

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
