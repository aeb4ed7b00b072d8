// Gradients of an adapter from the gradient of its merged weight: with W' = W + s B A, and the
// gradient passed straight through the rounding of W', dB = s dW' A^T and dA = s B^T dW'.
#pragma once

#include <cstdint>

namespace tandem {

// A block of rows, all arrays fp32, row-major and dense.
struct LoraGradientBlock {
  const float* dw = nullptr;  // [rows, in]
  const float* b = nullptr;   // [rows, rank]
  const float* a = nullptr;   // [rank, in]
  double scaling = 1;         // alpha / rank
  int64_t rows = 0;
  int64_t in = 0;
  int64_t rank = 0;
  float* db = nullptr;  // [rows, rank], added to
  float* da = nullptr;  // [rank, in], added to
};

// Sums in fp32 without fused operations, in an order that depends on `in` alone: a row of dB sums
// its columns in 16 lanes of ascending columns, then the lanes in ascending order; an element of dA
// adds one row after the other, (s * B) * dW. Therefore blocks of rows in ascending order give the
// bits of all rows at once. Runs on the calling thread with its mode for denormals.
void AddLoraGradients(const LoraGradientBlock& block);
// The parts of AddLoraGradients, which threads may run in parallel: rows [first, last) of dB, and
// columns [first, last) of dA. The split changes no bit.
void AddRowsOfLoraB(const LoraGradientBlock& block, int64_t first, int64_t last);
void AddColumnsOfLoraA(const LoraGradientBlock& block, int64_t first, int64_t last);

}  // namespace tandem
