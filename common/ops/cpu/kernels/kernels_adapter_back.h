// Products with one dimension of an adapter's rank, in backward: small beside those with its
// weight, and in fp32, since what lies between A and B is (RankProductCall).
#pragma once

#include "common/ops/cpu/kernels/kernel_set.h"
#include "common/ops/cpu/kernels/vec_elements.h"

namespace tandem {
namespace {

TANDEM_INLINE float WidenOne(float x) { return x; }
TANDEM_INLINE float WidenOne(BfloatBits x) {
  const uint32_t bits = static_cast<uint32_t>(x) << 16;
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}

// kRows rows of the output from row i on, 16 columns at a time.
template <typename X, typename Y, int kRows>
TANDEM_INLINE void RankRows(const RankProductCall& call, int64_t i) {
  const X* const x = static_cast<const X*>(call.x) + i * call.x_i;
  const F32x16 scale = Set1(call.scale);
  for (int64_t col = 0; col < call.cols; col += 16) {
    const int64_t n = call.cols - col;
    const Y* y = static_cast<const Y*>(call.y) + col;
    float* const out = call.out + i * call.out_stride + col;
    F32x16 sums[kRows];
    for (int m = 0; m < kRows; ++m) {
      sums[m] = call.add ? LoadUpTo(out + m * call.out_stride, n) : Zero();
    }
    for (int64_t j = 0; j < call.terms; ++j, y += call.y_stride) {
      const F32x16 values = LoadUpTo(y, n);
      const X* const factor = x + j * call.x_j;
#pragma GCC unroll 8
      for (int m = 0; m < kRows; ++m) {
        sums[m] = Fma(Set1(WidenOne(factor[m * call.x_i])), values, sums[m]);
      }
    }
    for (int m = 0; m < kRows; ++m) {
      StoreUpTo(out + m * call.out_stride, call.add ? sums[m] : Mul(sums[m], scale), n);
    }
  }
}

template <typename X, typename Y>
void RankProduct(const RankProductCall& call, int64_t i0, int64_t i1) {
  int64_t i = i0;
  for (; i + 8 <= i1; i += 8) RankRows<X, Y, 8>(call, i);
  for (; i < i1; ++i) RankRows<X, Y, 1>(call, i);
}

}  // namespace
}  // namespace tandem
