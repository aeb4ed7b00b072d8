#include "common/ops/cpu/dropped_rows.h"

#include <algorithm>
#include <cmath>

#include <emmintrin.h>

namespace tandem {
namespace {

// Columns for which draws are made at a time, by two Philox counters at once.
constexpr int64_t kBlock = 64;

// Words 0 to 3 of two counters, each in the low half of 64 bits; the upper halves are undefined.
struct Counters {
  __m128i words[4];
};

// Philox's ten rounds (philox.h). Every x86-64 has these instructions.
Counters Rounds(Counters c, uint64_t key) {
  const __m128i multiplier0 = _mm_set1_epi64x(0xD2511F53), step0 = _mm_set1_epi64x(0x9E3779B9);
  const __m128i multiplier1 = _mm_set1_epi64x(0xCD9E8D57), step1 = _mm_set1_epi64x(0xBB67AE85);
  __m128i key0 = _mm_set1_epi64x(static_cast<int64_t>(key));
  __m128i key1 = _mm_srli_epi64(key0, 32);
  for (int round = 0; round < 10; ++round) {
    const __m128i product0 = _mm_mul_epu32(multiplier0, c.words[0]);
    const __m128i product1 = _mm_mul_epu32(multiplier1, c.words[2]);
    c.words[0] = _mm_xor_si128(_mm_xor_si128(_mm_srli_epi64(product1, 32), c.words[1]), key0);
    c.words[1] = product1;
    c.words[2] = _mm_xor_si128(_mm_xor_si128(_mm_srli_epi64(product0, 32), c.words[3]), key1);
    c.words[3] = product0;
    key0 = _mm_add_epi32(key0, step0);
    key1 = _mm_add_epi32(key1, step1);
  }
  return c;
}

// DropoutDraw of kBlock columns, `col` (a multiple of kBlock) the first.
void DrawBlock(uint64_t row_key, int64_t module, int64_t col, uint16_t* draws) {
  const __m128i stream = _mm_set1_epi64x(module);
  const __m128i stream_high = _mm_srli_epi64(stream, 32);
  auto* to = reinterpret_cast<__m128i*>(draws);
  for (int64_t index = col / 8; index < (col + kBlock) / 8; index += 2, to += 2) {
    const __m128i counter = _mm_set_epi64x(index + 1, index);
    const Counters c =
        Rounds({{counter, _mm_srli_epi64(counter, 32), stream, stream_high}}, row_key);
    _mm_storeu_si128(to, _mm_unpacklo_epi64(_mm_unpacklo_epi32(c.words[0], c.words[1]),
                                            _mm_unpacklo_epi32(c.words[2], c.words[3])));
    _mm_storeu_si128(to + 1, _mm_unpacklo_epi64(_mm_unpackhi_epi32(c.words[0], c.words[1]),
                                                _mm_unpackhi_epi32(c.words[2], c.words[3])));
  }
}

// Calls visit(first column, number of columns, draws) for all blocks of a row.
template <typename Visit>
void EachBlock(uint64_t row_key, int64_t module, int64_t cols, const Visit& visit) {
  uint16_t draws[kBlock];
  for (int64_t col = 0; col < cols; col += kBlock) {
    DrawBlock(row_key, module, col, draws);
    visit(col, std::min(kBlock, cols - col), draws);
  }
}

// Has no branches, because random bits would be mispredicted.
template <typename Element>
void CopyRow(const AdapterDropout& dropout,
             uint64_t row_key,
             int64_t module,
             const std::byte* in,
             int64_t cols,
             std::byte* out) {
  const auto below = static_cast<uint16_t>(dropout.below);
  EachBlock(row_key, module, cols, [&](int64_t col, int64_t count, const uint16_t* draws) {
    const Element* __restrict const from = reinterpret_cast<const Element*>(in) + col;
    Element* __restrict const to = reinterpret_cast<Element*>(out) + col;
    for (int64_t i = 0; i < count; ++i) {
      to[i] = from[i] & static_cast<Element>(-static_cast<Element>(draws[i] >= below));
    }
  });
}

}  // namespace

void CopyKept(const AdapterDropout& dropout,
              uint64_t row_key,
              int64_t module,
              const std::byte* in,
              int64_t cols,
              int64_t element_bytes,
              std::byte* out) {
  if (element_bytes == 2) return CopyRow<uint16_t>(dropout, row_key, module, in, cols, out);
  CopyRow<uint32_t>(dropout, row_key, module, in, cols, out);
}

void AddKept(const AdapterDropout& dropout,
             uint64_t row_key,
             int64_t module,
             const float* d,
             int64_t cols,
             float* sums) {
  const auto below = static_cast<uint16_t>(dropout.below);
  EachBlock(row_key, module, cols, [&](int64_t col, int64_t count, const uint16_t* draws) {
    const float* __restrict const add = d + col;
    float* __restrict const to = sums + col;
    for (int64_t i = 0; i < count; ++i) {
      const bool left = (draws[i] < below) | (std::abs(add[i]) < 0x1p-126f);
      const float sum = to[i] + add[i];
      to[i] = left ? to[i] : sum;
    }
  });
}

}  // namespace tandem
