// What the kernel files need before any vector code. Everything in the kernel headers is in
// anonymous namespaces and avoids std templates: these headers are compiled once per instruction
// set, and an inline function with external linkage would bring instructions that older machines
// lack into the rest of the program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#define TANDEM_INLINE inline __attribute__((always_inline))

namespace tandem {
namespace {

using BfloatBits = uint16_t;

template <typename T>
constexpr TANDEM_INLINE T Smaller(T a, T b) {
  return a < b ? a : b;
}

template <typename T>
constexpr TANDEM_INLINE T Larger(T a, T b) {
  return a < b ? b : a;
}

// Words of A or B are moved as 32 bits: a pair of bf16 or one fp32.
TANDEM_INLINE uint32_t LoadWord(const std::byte* from) {
  uint32_t word;
  __builtin_memcpy(&word, from, 4);
  return word;
}
TANDEM_INLINE float LoadFloat(const std::byte* from) {
  float value;
  __builtin_memcpy(&value, from, 4);
  return value;
}
// The last element of a row of odd length; its missing upper partner reads as zero.
TANDEM_INLINE uint32_t LoadHalfWord(const std::byte* from) {
  BfloatBits half;
  __builtin_memcpy(&half, from, 2);
  return half;
}

// Reduction trees over 8 lanes, written out because their order is part of the numerics.
TANDEM_INLINE float SumLanes8(__m256 v) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
TANDEM_INLINE float MaxLanes8(__m256 v) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

}  // namespace
}  // namespace tandem
