// Sixteen fp32 lanes as two AVX2 registers. Needs AVX2 and FMA. Same functions, same bits as
// vec_avx512.h.
#pragma once

#include "common/ops/cpu/kernels/vec_common.h"

namespace tandem {
namespace {

struct F32x16 {
  __m256 lo, hi;
};

TANDEM_INLINE F32x16 Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
TANDEM_INLINE F32x16 Set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
TANDEM_INLINE F32x16 Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
TANDEM_INLINE void Store(float* p, F32x16 x) {
  _mm256_storeu_ps(p, x.lo);
  _mm256_storeu_ps(p + 8, x.hi);
}
// The first n lanes, n < 16; the others read as zero and are not written.
TANDEM_INLINE F32x16 LoadPartial(const float* p, int64_t n) {
  float lanes[16] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
  return Load(lanes);
}
TANDEM_INLINE void StorePartial(float* p, F32x16 x, int64_t n) {
  float lanes[16];
  Store(lanes, x);
  for (int64_t i = 0; i < n; ++i) p[i] = lanes[i];
}
TANDEM_INLINE F32x16 Add(F32x16 a, F32x16 b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
TANDEM_INLINE F32x16 Sub(F32x16 a, F32x16 b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
TANDEM_INLINE F32x16 Mul(F32x16 a, F32x16 b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
// a * b + c and c - a * b, rounded once.
TANDEM_INLINE F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
TANDEM_INLINE F32x16 Fnma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
}
// Returns b if either is NaN.
TANDEM_INLINE F32x16 Max(F32x16 a, F32x16 b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
// Moves the low nine bits of every lane to sign and exponent, which makes a power of two.
TANDEM_INLINE F32x16 LowBitsToExponent(F32x16 a) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(a.lo), 23)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(a.hi), 23))};
}
// a < b ? 0 : x * y, per lane.
TANDEM_INLINE F32x16 MulUnlessLess(F32x16 a, F32x16 b, F32x16 x, F32x16 y) {
  return {_mm256_and_ps(_mm256_mul_ps(x.lo, y.lo), _mm256_cmp_ps(a.lo, b.lo, _CMP_NLT_UQ)),
          _mm256_and_ps(_mm256_mul_ps(x.hi, y.hi), _mm256_cmp_ps(a.hi, b.hi, _CMP_NLT_UQ))};
}
TANDEM_INLINE F32x16 Negate(F32x16 a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_xor_ps(a.lo, sign), _mm256_xor_ps(a.hi, sign)};
}
// a < b ? x : y, per lane.
TANDEM_INLINE F32x16 SelectLess(F32x16 a, F32x16 b, F32x16 x, F32x16 y) {
  return {_mm256_blendv_ps(y.lo, x.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.hi, x.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
}
// Lanes from n on become `fill`; n <= 16.
TANDEM_INLINE F32x16 KeepFirst(F32x16 a, int64_t n, float fill) {
  const __m256i limit = _mm256_set1_epi32(static_cast<int>(n));
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256 lo = _mm256_castsi256_ps(_mm256_cmpgt_epi32(limit, index));
  const __m256 hi =
      _mm256_castsi256_ps(_mm256_cmpgt_epi32(limit, _mm256_add_epi32(index, _mm256_set1_epi32(8))));
  const __m256 filler = _mm256_set1_ps(fill);
  return {_mm256_blendv_ps(filler, a.lo, lo), _mm256_blendv_ps(filler, a.hi, hi)};
}
TANDEM_INLINE float SumLanes(F32x16 a) { return SumLanes8(_mm256_add_ps(a.lo, a.hi)); }
TANDEM_INLINE float MaxLanes(F32x16 a) { return MaxLanes8(_mm256_max_ps(a.lo, a.hi)); }

TANDEM_INLINE __m256 WidenBits(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
TANDEM_INLINE F32x16 WidenBits(__m256i bits) {
  return {WidenBits(_mm256_castsi256_si128(bits)), WidenBits(_mm256_extracti128_si256(bits, 1))};
}
// Sixteen pairs of bf16 as a panel stores them: the even or the odd element of each pair.
TANDEM_INLINE F32x16 EvenOfPairs(const std::byte* p) {
  const __m256i* const pairs = reinterpret_cast<const __m256i*>(p);
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256(pairs), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256(pairs + 1), 16))};
}
TANDEM_INLINE F32x16 OddOfPairs(const std::byte* p) {
  const __m256i* const pairs = reinterpret_cast<const __m256i*>(p);
  const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  return {_mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256(pairs), high)),
          _mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256(pairs + 1), high))};
}
// Rounded bf16 in the low half of every 32-bit lane.
TANDEM_INLINE __m256i RoundLanes(__m256 a) {
  const __m256i bits = _mm256_castps_si256(a);
  const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i denormal = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x00800000), magnitude);
  const __m256i nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f800000));
  const __m256i sign = _mm256_and_si256(bits, _mm256_set1_epi32(INT32_MIN));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x00400000));
  rounded = _mm256_blendv_epi8(rounded, sign, denormal);
  rounded = _mm256_blendv_epi8(rounded, quiet, nan);
  return _mm256_srli_epi32(rounded, 16);
}
// Round to nearest even, as vcvtneps2bf16 does: denormals become zero, NaN stays NaN.
TANDEM_INLINE __m256i RoundBits(F32x16 a) {
  const __m256i packed = _mm256_packus_epi32(RoundLanes(a.lo), RoundLanes(a.hi));
  return _mm256_permute4x64_epi64(packed, 0xd8);
}

// Operands of the GEMM kernel: a word of A broadcast to all lanes, and sixteen words of B. Dot adds
// the products of a word, for bf16 the odd element of the pair first. The 16 registers hold MaxRows
// rows of accumulators for one panel, one B and one A.
template <typename T>
struct Words;

template <>
struct Words<float> {
  using A = __m256;
  using B = F32x16;
  static constexpr bool kWidenA = false;
  static constexpr int kMaxPanels = 1;
  static constexpr int MaxRows(int) { return 6; }
  static TANDEM_INLINE A LoadA(const std::byte* p) { return _mm256_set1_ps(LoadFloat(p)); }
  static TANDEM_INLINE A FromWord(uint32_t word) {
    return _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(word)));
  }
  static TANDEM_INLINE B LoadB(const std::byte* p) {
    return Load(reinterpret_cast<const float*>(p));
  }
  static TANDEM_INLINE F32x16 Dot(F32x16 acc, A a, B b) {
    return {_mm256_fmadd_ps(a, b.lo, acc.lo), _mm256_fmadd_ps(a, b.hi, acc.hi)};
  }
};

template <>
struct Words<BfloatBits> {
  struct A {
    __m256 even, odd;
  };
  struct B {
    F32x16 even, odd;
  };
  // A is widened to fp32 once per row block, so that a broadcast costs only a load.
  static constexpr bool kWidenA = true;
  static constexpr int kMaxPanels = 1;
  static constexpr int MaxRows(int) { return 4; }
  static TANDEM_INLINE A LoadA(const std::byte* p) {
    return {_mm256_set1_ps(LoadFloat(p)), _mm256_set1_ps(LoadFloat(p + 4))};
  }
  static TANDEM_INLINE B LoadB(const std::byte* p) {
    const __m256i lo = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    const __m256i hi = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32));
    const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    return {{_mm256_castsi256_ps(_mm256_slli_epi32(lo, 16)),
             _mm256_castsi256_ps(_mm256_slli_epi32(hi, 16))},
            {_mm256_castsi256_ps(_mm256_and_si256(lo, high)),
             _mm256_castsi256_ps(_mm256_and_si256(hi, high))}};
  }
  static TANDEM_INLINE F32x16 Dot(F32x16 acc, A a, B b) {
    const F32x16 odd = {_mm256_fmadd_ps(a.odd, b.odd.lo, acc.lo),
                        _mm256_fmadd_ps(a.odd, b.odd.hi, acc.hi)};
    return {_mm256_fmadd_ps(a.even, b.even.lo, odd.lo), _mm256_fmadd_ps(a.even, b.even.hi, odd.hi)};
  }
};

}  // namespace
}  // namespace tandem
