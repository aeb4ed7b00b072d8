// Sixteen fp32 lanes as one AVX-512 register. Needs AVX-512F; uses AVX512_BF16 where the file is
// compiled with it. Same functions, same bits as vec_avx2.h.
#pragma once

#include "common/ops/cpu/kernels/vec_common.h"

namespace tandem {
namespace {

struct F32x16 {
  __m512 v;
};

TANDEM_INLINE __mmask16 FirstLanes(int64_t n) {
  return static_cast<__mmask16>((uint32_t{1} << n) - 1);
}

TANDEM_INLINE F32x16 Zero() { return {_mm512_setzero_ps()}; }
TANDEM_INLINE F32x16 Set1(float x) { return {_mm512_set1_ps(x)}; }
TANDEM_INLINE F32x16 Load(const float* p) { return {_mm512_loadu_ps(p)}; }
TANDEM_INLINE void Store(float* p, F32x16 x) { _mm512_storeu_ps(p, x.v); }
// The first n lanes, n < 16; the others read as zero and are not written.
TANDEM_INLINE F32x16 LoadPartial(const float* p, int64_t n) {
  return {_mm512_maskz_loadu_ps(FirstLanes(n), p)};
}
TANDEM_INLINE void StorePartial(float* p, F32x16 x, int64_t n) {
  _mm512_mask_storeu_ps(p, FirstLanes(n), x.v);
}
TANDEM_INLINE F32x16 Add(F32x16 a, F32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
TANDEM_INLINE F32x16 Sub(F32x16 a, F32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
TANDEM_INLINE F32x16 Mul(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
// a * b + c and c - a * b, rounded once.
TANDEM_INLINE F32x16 Fma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
TANDEM_INLINE F32x16 Fnma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm512_fnmadd_ps(a.v, b.v, c.v)};
}
// Returns b if either is NaN.
TANDEM_INLINE F32x16 Max(F32x16 a, F32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }
// Moves the low nine bits of every lane to sign and exponent, which makes a power of two.
TANDEM_INLINE F32x16 LowBitsToExponent(F32x16 a) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(a.v), 23))};
}
// a < b ? 0 : x * y, per lane.
TANDEM_INLINE F32x16 MulUnlessLess(F32x16 a, F32x16 b, F32x16 x, F32x16 y) {
  return {_mm512_maskz_mul_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_NLT_UQ), x.v, y.v)};
}
TANDEM_INLINE F32x16 Negate(F32x16 a) {
  return {_mm512_castsi512_ps(
      _mm512_xor_si512(_mm512_castps_si512(a.v), _mm512_set1_epi32(INT32_MIN)))};
}
// a < b ? x : y, per lane.
TANDEM_INLINE F32x16 SelectLess(F32x16 a, F32x16 b, F32x16 x, F32x16 y) {
  return {_mm512_mask_mov_ps(y.v, _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), x.v)};
}
// Lanes from n on become `fill`; n <= 16.
TANDEM_INLINE F32x16 KeepFirst(F32x16 a, int64_t n, float fill) {
  return {_mm512_mask_mov_ps(_mm512_set1_ps(fill), FirstLanes(n), a.v)};
}
TANDEM_INLINE float SumLanes(F32x16 a) {
  const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a.v), 1));
  return SumLanes8(_mm256_add_ps(_mm512_castps512_ps256(a.v), high));
}
TANDEM_INLINE float MaxLanes(F32x16 a) {
  const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a.v), 1));
  return MaxLanes8(_mm256_max_ps(_mm512_castps512_ps256(a.v), high));
}

TANDEM_INLINE F32x16 WidenBits(__m256i bits) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}
// Sixteen pairs of bf16 as a panel stores them: the even or the odd element of each pair.
TANDEM_INLINE F32x16 EvenOfPairs(const std::byte* p) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16))};
}
TANDEM_INLINE F32x16 OddOfPairs(const std::byte* p) {
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  return {_mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), high))};
}
// Round to nearest even, as vcvtneps2bf16 does: denormals become zero, NaN stays NaN.
TANDEM_INLINE __m256i RoundBits(F32x16 a) {
#ifdef __AVX512BF16__
  return (__m256i)_mm512_cvtneps_pbh(a.v);
#else
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 denormal =
      _mm512_cmp_epi32_mask(magnitude, _mm512_set1_epi32(0x00800000), _MM_CMPINT_LT);
  const __mmask16 nan =
      _mm512_cmp_epi32_mask(magnitude, _mm512_set1_epi32(0x7f800000), _MM_CMPINT_NLE);
  const __m512i sign = _mm512_and_si512(bits, _mm512_set1_epi32(INT32_MIN));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x00400000));
  rounded = _mm512_mask_mov_epi32(rounded, denormal, sign);
  rounded = _mm512_mask_mov_epi32(rounded, nan, quiet);
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
#endif
}

// Operands of the GEMM kernel: a word of A broadcast to all lanes, and sixteen words of B. Dot adds
// the products of a word, for bf16 the odd element of the pair first. MaxRows(n) rows by n panels
// of accumulators, B and one A fit into the 32 registers.
template <typename T>
struct Words;

template <>
struct Words<float> {
  using A = __m512;
  using B = __m512;
  static constexpr bool kWidenA = false;
  static constexpr int kMaxPanels = 2;  // the reference path: few sizes, which compile quickly
  static constexpr int MaxRows(int) { return 6; }
  static TANDEM_INLINE A LoadA(const std::byte* p) { return _mm512_set1_ps(LoadFloat(p)); }
  static TANDEM_INLINE A FromWord(uint32_t word) {
    return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(word)));
  }
  static TANDEM_INLINE B LoadB(const std::byte* p) { return _mm512_loadu_ps(p); }
  static TANDEM_INLINE F32x16 Dot(F32x16 acc, A a, B b) { return {_mm512_fmadd_ps(a, b, acc.v)}; }
};

#ifdef __AVX512BF16__
template <>
struct Words<BfloatBits> {
  using A = __m512bh;
  using B = __m512bh;
  static constexpr bool kWidenA = false;
  static constexpr int kMaxPanels = 4;
  static constexpr int MaxRows(int panels) { return panels == 4 ? 6 : 8; }
  static TANDEM_INLINE A FromWord(uint32_t word) {
    return (__m512bh)_mm512_set1_epi32(static_cast<int>(word));
  }
  static TANDEM_INLINE A LoadA(const std::byte* p) { return FromWord(LoadWord(p)); }
  static TANDEM_INLINE B LoadB(const std::byte* p) { return (__m512bh)_mm512_loadu_si512(p); }
  static TANDEM_INLINE F32x16 Dot(F32x16 acc, A a, B b) { return {_mm512_dpbf16_ps(acc.v, a, b)}; }
};
#else
template <>
struct Words<BfloatBits> {
  struct Pair {
    __m512 even, odd;
  };
  using A = Pair;
  using B = Pair;
  // A is widened to fp32 once per row block, so that a broadcast costs only a load.
  static constexpr bool kWidenA = true;
  static constexpr int kMaxPanels = 4;
  static constexpr int MaxRows(int panels) { return panels == 4 ? 5 : panels == 3 ? 8 : 12; }
  static TANDEM_INLINE A LoadA(const std::byte* p) {
    return {_mm512_set1_ps(LoadFloat(p)), _mm512_set1_ps(LoadFloat(p + 4))};
  }
  static TANDEM_INLINE B LoadB(const std::byte* p) {
    const __m512i bits = _mm512_loadu_si512(p);
    const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(bits, 16)),
            _mm512_castsi512_ps(_mm512_and_si512(bits, high))};
  }
  static TANDEM_INLINE F32x16 Dot(F32x16 acc, A a, B b) {
    return {_mm512_fmadd_ps(a.even, b.even, _mm512_fmadd_ps(a.odd, b.odd, acc.v))};
  }
};
#endif

}  // namespace
}  // namespace tandem
