// Vectors of the compute dtype: loaded as fp32, rounded once when stored. The vectors are those of
// the instruction set for which the including file is compiled.
#pragma once

#include "common/ops/cpu/kernels/vec_common.h"
#ifdef __AVX512F__
#include "common/ops/cpu/kernels/vec_avx512.h"
#else
#include "common/ops/cpu/kernels/vec_avx2.h"
#endif

namespace tandem {
namespace {

TANDEM_INLINE F32x16 Load(const BfloatBits* p) {
  return WidenBits(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
TANDEM_INLINE void Store(BfloatBits* p, F32x16 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), RoundBits(x));
}
TANDEM_INLINE F32x16 LoadPartial(const BfloatBits* p, int64_t n) {
  BfloatBits lanes[16] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
  return Load(lanes);
}
TANDEM_INLINE void StorePartial(BfloatBits* p, F32x16 x, int64_t n) {
  BfloatBits lanes[16];
  Store(lanes, x);
  for (int64_t i = 0; i < n; ++i) p[i] = lanes[i];
}

// Stores 32 elements at once if possible, so that a load of all of them need not wait.
TANDEM_INLINE void StorePair(float* p, F32x16 low, F32x16 high) {
  Store(p, low);
  Store(p + 16, high);
}
TANDEM_INLINE void StorePair(BfloatBits* p, F32x16 low, F32x16 high) {
#ifdef __AVX512BF16__
  _mm512_storeu_si512(p, (__m512i)_mm512_cvtne2ps_pbh(high.v, low.v));
#else
  Store(p, low);
  Store(p + 16, high);
#endif
}

// x rounded to T and widened again.
template <typename T>
TANDEM_INLINE F32x16 RoundTo(F32x16 x);
template <>
TANDEM_INLINE F32x16 RoundTo<BfloatBits>(F32x16 x) {
  return WidenBits(RoundBits(x));
}
template <>
TANDEM_INLINE F32x16 RoundTo<float>(F32x16 x) {
  return x;
}

// For any n: a full vector or the first n lanes.
template <typename T>
TANDEM_INLINE F32x16 LoadUpTo(const T* p, int64_t n) {
  return n >= 16 ? Load(p) : LoadPartial(p, n);
}
template <typename T>
TANDEM_INLINE void StoreUpTo(T* p, F32x16 x, int64_t n) {
  if (n >= 16) {
    Store(p, x);
  } else {
    StorePartial(p, x, n);
  }
}

// exp for x <= 0, relative error below 2^-23 * 1.2: Cephes' degree-5 polynomial after reduction
// by ln 2 in two parts. Below -87 it returns 0 exactly. NaN stays NaN.
TANDEM_INLINE F32x16 Exp(F32x16 x) {
  // Near 1.5 * 2^23 the spacing of floats is 1: adding it rounds x / ln 2 to n and leaves n + 127,
  // the exponent field of 2^n, in the low bits.
  const F32x16 magic = Set1(12582912.0f + 127.0f);
  const F32x16 shifted = Fma(x, Set1(1.44269504f), magic);
  const F32x16 n = Sub(shifted, magic);
  const F32x16 r = Fnma(n, Set1(-2.12194440e-4f), Fnma(n, Set1(0.693359375f), x));
  F32x16 p = Set1(1.9875691500e-4f);
  p = Fma(p, r, Set1(1.3981999507e-3f));
  p = Fma(p, r, Set1(8.3334519073e-3f));
  p = Fma(p, r, Set1(4.1665795894e-2f));
  p = Fma(p, r, Set1(1.6666665459e-1f));
  p = Fma(p, r, Set1(5.0000001201e-1f));
  p = Fma(p, Mul(r, r), Add(r, Set1(1.0f)));
  return MulUnlessLess(x, Set1(-87.0f), p, LowBitsToExponent(shifted));
}
TANDEM_INLINE float Exp(float x) {
  float lanes[16];
  Store(lanes, Exp(Set1(x)));
  return lanes[0];
}

// 1 / x for x in [1, 2] within two units in the last place: the quadratic with the smallest
// relative error, 1/99, and two Newton steps. A vector division takes sixteen cycles, this takes
// three.
TANDEM_INLINE F32x16 ReciprocalOf1To2(F32x16 x) {
  const F32x16 one = Set1(1.0f);
  F32x16 y = Fma(Fma(Set1(32.0f / 99.0f), x, Set1(-144.0f / 99.0f)), x, Set1(210.0f / 99.0f));
  y = Fma(Fnma(x, y, one), y, y);
  return Fma(Fnma(x, y, one), y, y);
}

// 1 / (1 + exp(-x)), without overflow on either side.
TANDEM_INLINE F32x16 Sigmoid(F32x16 x) {
  const F32x16 one = Set1(1.0f);
  const F32x16 e = Exp(SelectLess(x, Zero(), x, Negate(x)));
  return Mul(SelectLess(x, Zero(), e, one), ReciprocalOf1To2(Add(one, e)));
}

}  // namespace
}  // namespace tandem
