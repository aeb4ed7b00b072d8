// The GEMM of numerics class amx32 in AVX-512F: the bits of gemm_amx.h on machines without
// tiles, for tests. Slow.
#pragma once

#include "common/ops/cpu/kernels/gemm.h"

namespace tandem {
namespace {

// The word of A at `word` of a row.
TANDEM_INLINE uint32_t WordOfA(const GemmCall& call, int64_t row, int64_t word) {
  const std::byte* a = static_cast<const std::byte*>(call.a);
  if (call.a_panel_bytes != 0) {
    return LoadWord(a + row / 16 * call.a_panel_bytes + word * 64 + row % 16 * 4);
  }
  const std::byte* at = a + row * call.a_stride * 2 + word * 4;
  return word * 2 + 1 < call.k ? LoadWord(at) : LoadHalfWord(at);
}

TANDEM_INLINE __m512 WidenWord(uint32_t half) {
  return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(half)));
}

// kRows rows of one panel.
template <int kRows>
void EmulatedBlock(const GemmCall& call, int64_t row, int64_t panel) {
  const TileRange range = {row, kRows, panel, 1};
  alignas(64) float tile[kRows * 16] = {};
  if (call.output == GemmCall::Output::kAccumulate) LoadTile(call, range, tile);
  const std::byte* b = call.b + panel * call.panel_bytes;
  const int64_t words = (call.k + 1) / 2;
  for (int64_t first = 0; first < words; first += 16) {
    __m512 even[kRows], odd[kRows];
    for (int m = 0; m < kRows; ++m) even[m] = odd[m] = _mm512_setzero_ps();
    for (int64_t word = first; word < Smaller(words, first + 16); ++word) {
      const Words<BfloatBits>::B pair = Words<BfloatBits>::LoadB(b + word * 64);
#pragma GCC unroll 4
      for (int m = 0; m < kRows; ++m) {
        const uint32_t a = WordOfA(call, row + m, word);
        even[m] = _mm512_fmadd_ps(WidenWord(a << 16), pair.even, even[m]);
        odd[m] = _mm512_fmadd_ps(WidenWord(a & 0xffff0000u), pair.odd, odd[m]);
      }
    }
    for (int m = 0; m < kRows; ++m) {
      const F32x16 sums = {_mm512_add_ps(even[m], odd[m])};
      Store(tile + m * 16, Add(Load(tile + m * 16), sums));
    }
  }
  StoreTile<BfloatBits>(call, range, tile);
}

template <>
class GemmContext<BfloatBits> {
 public:
  static constexpr int64_t kSumUnit = 32;
  static constexpr GemmCut kCut = {
      .a_elements = 384 << 10, .b_elements = int64_t{1} << 40, .min_rows = 240, .row_unit = 4};

  void Run(const GemmCall& call, int64_t row0, int64_t row1, int64_t panel0, int64_t panel1) {
    for (int64_t panel = panel0; panel < panel1; ++panel) {
      int64_t row = row0;
      for (; row + 4 <= row1; row += 4) EmulatedBlock<4>(call, row, panel);
      for (; row < row1; ++row) EmulatedBlock<1>(call, row, panel);
    }
  }
};

}  // namespace
}  // namespace tandem
