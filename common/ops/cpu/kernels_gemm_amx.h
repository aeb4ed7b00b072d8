// The GEMM of numerics class amx32: blocks of up to 2 x 2 or 1 x 4 tiles of 16 x 16 accumulators
// over the whole k. tdpbf16ps adds 32 elements of k at a time: the even and the odd ones in two
// chains of fp32 multiply-adds from zero, then both to the accumulator (kernels_gemm_emulated.h
// says it in vectors). Blocks of 32 follow each other in ascending k; a last, shorter one is a
// shorter tile. So no result depends on how rows and panels are divided.
#pragma once

#include "common/ops/cpu/kernels_gemm.h"

namespace tandem {
namespace {

constexpr int64_t kTileBytes = 1024;  // 16 rows of 64 bytes: 16 words each, 32 elements of k
constexpr int64_t kTileRows = 16;
constexpr int64_t kTileWords = 16;

// Registers 0 to 3 are accumulators. Products of whole blocks have A in 4 and 5 and B in 6 and 7;
// where the last block is shorter, whole blocks use 4 and 5 and the last one 6 and 7.
template <int kTile>
TANDEM_INLINE void TileLoad(const void* from, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
TANDEM_INLINE void TileStore(void* to, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
TANDEM_INLINE void TileZero() {
  asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
}
template <int kSum, int kA, int kB>
TANDEM_INLINE void TileDot() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kA), "i"(kB));
}

// The tile registers' shapes, for as long as this lives. Released afterwards, so that context
// switches need not save them and no other library finds our shapes.
class TileShapes {
 public:
  TileShapes() = default;
  ~TileShapes() {
    if (last_words_ >= 0) asm volatile("tilerelease");
  }
  TileShapes(const TileShapes&) = delete;
  TileShapes& operator=(const TileShapes&) = delete;

  // For products whose last block has `last_words` words; 0: it is whole. Clears all tiles.
  TANDEM_INLINE void Use(int64_t last_words) {
    if (last_words != last_words_) Load(last_words);
  }

 private:
  struct Config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  };

  void Load(int64_t last_words) {
    alignas(64) Config config = {};
    config.palette = 1;
    for (int tile = 0; tile < 8; ++tile) {
      config.row_bytes[tile] = 64;
      config.rows[tile] = kTileRows;
    }
    if (last_words > 0) {
      config.row_bytes[6] = static_cast<uint16_t>(last_words * 4);
      config.rows[7] = static_cast<uint8_t>(last_words);
    }
    asm volatile("ldtilecfg %0" ::"m"(config));
    last_words_ = last_words;
  }

  int64_t last_words_ = -1;
};

// 16 words of 16 lanes to 16 lanes of 16 words.
TANDEM_INLINE void TransposeWords(const __m512i from[16], std::byte* to) {
  __m512i pairs[16], fours[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_unpacklo_epi32(from[i], from[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_epi32(from[i], from[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    fours[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
    fours[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
    fours[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
    fours[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
  }
  // fours[4 * g + i] holds words 4g to 4g + 3 of lanes i, 4 + i, 8 + i and 12 + i.
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i low02 = _mm512_shuffle_i32x4(fours[i], fours[4 + i], 0x88);
    const __m512i low13 = _mm512_shuffle_i32x4(fours[i], fours[4 + i], 0xdd);
    const __m512i high02 = _mm512_shuffle_i32x4(fours[8 + i], fours[12 + i], 0x88);
    const __m512i high13 = _mm512_shuffle_i32x4(fours[8 + i], fours[12 + i], 0xdd);
    _mm512_storeu_si512(to + i * 64, _mm512_shuffle_i32x4(low02, high02, 0x88));
    _mm512_storeu_si512(to + (i + 4) * 64, _mm512_shuffle_i32x4(low13, high13, 0x88));
    _mm512_storeu_si512(to + (i + 8) * 64, _mm512_shuffle_i32x4(low02, high02, 0xdd));
    _mm512_storeu_si512(to + (i + 12) * 64, _mm512_shuffle_i32x4(low13, high13, 0xdd));
  }
}

// Where the A tiles of 16 rows are: block kb at first + kb * step, rows `stride` bytes apart.
struct TileRowsA {
  const std::byte* first;
  int64_t stride;
  int64_t step;
};

// A panel of Aᵀ as tiles.
void PackPanelTiles(const std::byte* panel, int64_t words, std::byte* tiles) {
  for (int64_t word = 0; word < words; word += kTileWords, tiles += kTileBytes) {
    __m512i lanes[16];
    for (int64_t i = 0; i < 16; ++i) {
      lanes[i] =
          word + i < words ? _mm512_loadu_si512(panel + (word + i) * 64) : _mm512_setzero_si512();
    }
    TransposeWords(lanes, tiles);
  }
}

// Fewer than 16 rows, or rows of odd length, as tiles. Rows beyond keep what the memory held:
// tdpbf16ps never mixes rows, and theirs are not stored.
void PackRowTiles(
    const std::byte* rows, int64_t row_bytes, int64_t count, int64_t k, std::byte* tiles) {
  for (int64_t row = 0; row < count; ++row, rows += row_bytes) {
    int64_t at = 0;
    for (; at + 64 <= k * 2; at += 64) {
      _mm512_storeu_si512(tiles + at * kTileRows + row * 64, _mm512_loadu_si512(rows + at));
    }
    if (at == k * 2) continue;
    std::byte* last = tiles + at * kTileRows + row * 64;
    _mm512_storeu_si512(last, _mm512_setzero_si512());
    __builtin_memcpy(last, rows + at, static_cast<size_t>(k * 2 - at));
  }
}

// A of rows [row, row + rows), at most 16; `tiles` has room for a copy.
TANDEM_INLINE TileRowsA PrepareTiles(const GemmCall& call,
                                     int64_t row,
                                     int64_t rows,
                                     std::byte* tiles) {
  const std::byte* a = static_cast<const std::byte*>(call.a);
  if (call.a_panel_bytes != 0) {
    PackPanelTiles(a + row / 16 * call.a_panel_bytes, (call.k + 1) / 2, tiles);
    return {tiles, 64, kTileBytes};
  }
  const int64_t row_bytes = call.a_stride * 2;
  if (rows == kTileRows && call.k % 2 == 0) return {a + row * row_bytes, row_bytes, 64};
  PackRowTiles(a + row * row_bytes, row_bytes, rows, call.k, tiles);
  return {tiles, 64, kTileBytes};
}

// One block of tiles of C: rows [row, row + rows) by panels from `panel` on.
struct TileBlock {
  int64_t row, rows, panel;
  TileRowsA a[2];
};

template <int kTile>
TANDEM_INLINE void LoadSums(const GemmCall& call, TileRange range) {
  if (call.output != GemmCall::Output::kAccumulate) return TileZero<kTile>();
  const int64_t col = range.panel * 16;
  if (range.rows == kTileRows && call.n - col >= 16) {
    const float* c = static_cast<const float*>(call.c) + range.row * call.c_stride + col;
    return TileLoad<kTile>(c, call.c_stride * 4);
  }
  alignas(64) float tile[256];
  LoadTile(call, range, tile);
  TileLoad<kTile>(tile, 64);
}

template <int kTile>
TANDEM_INLINE void StoreSums(const GemmCall& call, TileRange range) {
  const int64_t col = range.panel * 16;
  const bool in_place = call.output != GemmCall::Output::kRounded && call.bias == nullptr;
  if (in_place && range.rows == kTileRows && call.n - col >= 16) {
    float* c = static_cast<float*>(call.c) + range.row * call.c_stride + col;
    return TileStore<kTile>(c, call.c_stride * 4);
  }
  alignas(64) float tile[256];
  TileStore<kTile>(tile, 64);
  StoreTile<BfloatBits>(call, range, tile);
}

// B is fetched this many tiles ahead of its use.
constexpr int64_t kPrefetchTiles = 6;

TANDEM_INLINE void PrefetchB(const std::byte* tile) {
#pragma GCC unroll 16
  for (int64_t i = 0; i < kTileBytes; i += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(tile) + i, _MM_HINT_T0);
  }
}

// kRowTiles by kPanels accumulators; the accumulator of row tile r and panel p is 2r + p, or p.
template <int kRowTiles, int kPanels>
struct TileProduct {
  static_assert(kRowTiles * kPanels <= 4);

  // A whole block of k, where all of them are whole.
  static TANDEM_INLINE void Step(const TileBlock& block,
                                 int64_t kb,
                                 const std::byte* b,
                                 int64_t panel_bytes) {
    TileLoad<4>(block.a[0].first + kb * block.a[0].step, block.a[0].stride);
    TileLoad<6>(b, 64);
    TileDot<0, 4, 6>();
    if constexpr (kPanels > 1) {
      TileLoad<7>(b + panel_bytes, 64);
      TileDot<1, 4, 7>();
    }
    if constexpr (kRowTiles == 2) {
      TileLoad<5>(block.a[1].first + kb * block.a[1].step, block.a[1].stride);
      TileDot<2, 5, 6>();
      if constexpr (kPanels > 1) TileDot<3, 5, 7>();
    } else {
      if constexpr (kPanels > 2) {
        TileLoad<6>(b + 2 * panel_bytes, 64);
        TileDot<2, 4, 6>();
      }
      if constexpr (kPanels > 3) {
        TileLoad<7>(b + 3 * panel_bytes, 64);
        TileDot<3, 4, 7>();
      }
    }
  }

  // The same with one register for A and one for B.
  template <int kA, int kB>
  static TANDEM_INLINE void NarrowStep(const TileBlock& block,
                                       int64_t kb,
                                       const std::byte* b,
                                       int64_t panel_bytes) {
    const auto dot = [&]<int kSum>(int64_t panel) __attribute__((always_inline)) {
      TileLoad<kB>(b + panel * panel_bytes, 64);
      TileDot<kSum, kA, kB>();
    };
    TileLoad<kA>(block.a[0].first + kb * block.a[0].step, block.a[0].stride);
    dot.template operator()<0>(0);
    if constexpr (kPanels > 1) dot.template operator()<1>(1);
    if constexpr (kPanels > 2) dot.template operator()<2>(2);
    if constexpr (kPanels > 3) dot.template operator()<3>(3);
    if constexpr (kRowTiles == 2) {
      TileLoad<kA>(block.a[1].first + kb * block.a[1].step, block.a[1].stride);
      dot.template operator()<2>(0);
      if constexpr (kPanels > 1) dot.template operator()<3>(1);
    }
  }

  template <typename Function>
  static TANDEM_INLINE void ForEachSum(const TileBlock& block, const Function& function) {
    const int64_t rows0 = Smaller(block.rows, kTileRows);
    const auto one = [&]<int kSum>(int64_t row_tile, int64_t panel) __attribute__((always_inline)) {
      function.template operator()<kSum>(TileRange{block.row + row_tile * kTileRows,
                                                   row_tile == 0 ? rows0 : block.rows - kTileRows,
                                                   block.panel + panel, 1});
    };
    one.template operator()<0>(0, 0);
    if constexpr (kPanels > 1) one.template operator()<1>(0, 1);
    if constexpr (kPanels > 2) one.template operator()<2>(0, 2);
    if constexpr (kPanels > 3) one.template operator()<3>(0, 3);
    if constexpr (kRowTiles == 2) {
      one.template operator()<2>(1, 0);
      if constexpr (kPanels > 1) one.template operator()<3>(1, 1);
    }
  }

  static void Run(const GemmCall& call, const TileBlock& block) {
    const int64_t whole = call.k / 32, last_words = (call.k % 32 + 1) / 2;
    const std::byte* b = call.b + block.panel * call.panel_bytes;
    ForEachSum(
        block, [&]<int kSum>(TileRange range)
                   __attribute__((always_inline)) { LoadSums<kSum>(call, range); });
    if (last_words == 0) {
      // Beyond the last block come the first ones of the next panels.
      const std::byte* ahead = b + kPrefetchTiles * kTileBytes;
      for (int64_t kb = 0; kb < whole; ++kb, b += kTileBytes, ahead += kTileBytes) {
        if (kb + kPrefetchTiles == whole) ahead += (kPanels - 1) * call.panel_bytes;
#pragma GCC unroll 4
        for (int p = 0; p < kPanels; ++p) PrefetchB(ahead + p * call.panel_bytes);
        Step(block, kb, b, call.panel_bytes);
      }
    } else {
      for (int64_t kb = 0; kb < whole; ++kb, b += kTileBytes) {
        NarrowStep<4, 5>(block, kb, b, call.panel_bytes);
      }
      NarrowStep<6, 7>(block, whole, b, call.panel_bytes);
    }
    ForEachSum(
        block, [&]<int kSum>(TileRange range)
                   __attribute__((always_inline)) { StoreSums<kSum>(call, range); });
  }
};

// All panels of a task for up to 32 rows.
TANDEM_INLINE void RunTileRows(const GemmCall& call, TileBlock block, int64_t panel1) {
  if (block.rows > kTileRows) {
    for (; block.panel + 2 <= panel1; block.panel += 2) TileProduct<2, 2>::Run(call, block);
    if (block.panel < panel1) TileProduct<2, 1>::Run(call, block);
    return;
  }
  for (; block.panel + 4 <= panel1; block.panel += 4) TileProduct<1, 4>::Run(call, block);
  switch (panel1 - block.panel) {
    case 3:
      return TileProduct<1, 3>::Run(call, block);
    case 2:
      return TileProduct<1, 2>::Run(call, block);
    case 1:
      return TileProduct<1, 1>::Run(call, block);
    default:
      return;
  }
}

// Bytes of B per pass over the rows: they stay in L2.
constexpr int64_t kPassBytes = int64_t{1} << 20;

template <>
class GemmContext<BfloatBits> {
 public:
  void Run(const GemmCall& call, int64_t row0, int64_t row1, int64_t panel0, int64_t panel1) {
    static thread_local WideBuffer buffer;
    const int64_t blocks = (call.k + 31) / 32;
    std::byte* tiles = buffer.Get(2 * blocks * kTileBytes);
    shapes_.Use((call.k % 32 + 1) / 2);
    const int64_t pass = Larger(kPassBytes / (blocks * kTileBytes) / 4 * 4, int64_t{4});
    for (int64_t panel = panel0; panel < panel1; panel += pass) {
      for (int64_t row = row0; row < row1; row += 2 * kTileRows) {
        TileBlock block = {row, Smaller(row1 - row, 2 * kTileRows), panel, {}};
        block.a[0] = PrepareTiles(call, row, Smaller(block.rows, kTileRows), tiles);
        if (block.rows > kTileRows) {
          block.a[1] = PrepareTiles(call, row + kTileRows, block.rows - kTileRows,
                                    tiles + blocks * kTileBytes);
        }
        RunTileRows(call, block, Smaller(panel1, panel + pass));
      }
    }
  }

 private:
  TileShapes shapes_;
};

}  // namespace
}  // namespace tandem
