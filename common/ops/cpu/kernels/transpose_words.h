// Transposes a 16 x 16 block of 32-bit words in AVX-512 registers, for packed weights and for the
// tiles of a product's A. Callers are compiled for AVX-512F, or have it as their target.
#pragma once

#include <immintrin.h>

namespace tandem {
namespace {

// Word i of every register becomes register i: first words of pairs of registers are exchanged,
// then of groups of four, then the 128-bit quarters.
__attribute__((target("avx512f"), always_inline)) inline void TransposeWords(__m512i (&r)[16]) {
  __m512i t[16];
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    const __m512i low01 = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    const __m512i high01 = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    const __m512i low23 = _mm512_unpacklo_epi32(r[i + 2], r[i + 3]);
    const __m512i high23 = _mm512_unpackhi_epi32(r[i + 2], r[i + 3]);
    t[i] = _mm512_unpacklo_epi64(low01, low23);
    t[i + 1] = _mm512_unpackhi_epi64(low01, low23);
    t[i + 2] = _mm512_unpacklo_epi64(high01, high23);
    t[i + 3] = _mm512_unpackhi_epi64(high01, high23);
  }
  // t[4 * g + i] holds word 4k + i of registers 4g to 4g + 3 in its quarter k.
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i a = _mm512_shuffle_i32x4(t[i], t[4 + i], 0x44);
    const __m512i b = _mm512_shuffle_i32x4(t[i], t[4 + i], 0xee);
    const __m512i c = _mm512_shuffle_i32x4(t[8 + i], t[12 + i], 0x44);
    const __m512i d = _mm512_shuffle_i32x4(t[8 + i], t[12 + i], 0xee);
    r[i] = _mm512_shuffle_i32x4(a, c, 0x88);
    r[4 + i] = _mm512_shuffle_i32x4(a, c, 0xdd);
    r[8 + i] = _mm512_shuffle_i32x4(b, d, 0x88);
    r[12 + i] = _mm512_shuffle_i32x4(b, d, 0xdd);
  }
}

}  // namespace
}  // namespace tandem
