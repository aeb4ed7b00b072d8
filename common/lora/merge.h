// Adds the product of an adapter to rows of its weight; trainer and rollout compute with the sum.
//
// One formula, the same on every device and in PEFT's fp32 merge: for each element, in fp32,
//   p = 0; p = fma(B[i, k], A[k, j], p) for k = 0 .. rank - 1;  d = p * s;  w + d, rounded once,
// with s = alpha / rank as fp32 and all roundings to nearest even. If d is 0, the result is w with
// its sign, so that an adapter whose B is zero changes no bit. Each element depends only on its own
// row of B and column of A: how rows are divided between calls or threads changes nothing.
#pragma once

#include <cstdint>

#include "common/types/tensor_view.h"

namespace tandem {

// How the product d is rounded before it is added to the weight.
enum class MergeRule {
  kServed,       // not rounded: only the sum is, to the output's dtype; these weights are served
  kBf16Product,  // to bf16, as PEFT does for an adapter stored as bf16 (two roundings)
};

// A block of rows, all arrays row-major and dense.
struct MergeBlock {
  const void* base = nullptr;  // [rows, in], of any alignment
  DType base_dtype = DType::kBFloat16;
  const float* b = nullptr;  // [rows, rank]: the rows of B that belong to the block
  const float* a = nullptr;  // [rank, in]
  double scaling = 1;        // alpha / rank
  int64_t rows = 0;
  int64_t in = 0;
  int64_t rank = 0;
  void* out = nullptr;  // [rows, in], of any alignment; may be `base` where the dtypes are equal
  DType out_dtype = DType::kBFloat16;
  MergeRule rule = MergeRule::kServed;
};

// Both dtypes must be F32 or BF16. Runs on the calling thread, keeps denormals whatever its mode,
// and allocates nothing. Threads may merge different rows in parallel.
void MergeRows(const MergeBlock& block);

}  // namespace tandem
