// The GEMM of numerics class amx32, and the tile registers that it uses. The instructions are
// written in assembly, so that files need no compiler flag for them.
#pragma once

#include "common/ops/cpu/kernels/gemm.h"
#include "common/ops/cpu/kernels/transpose_words.h"
#include "common/ops/cpu/kernels/vec_common.h"

namespace tandem {
namespace {

constexpr int64_t kTileBytes = 1024;  // 16 rows of 64 bytes: 16 words each, 32 elements of k
constexpr int64_t kTileRows = 16;
constexpr int64_t kTileWords = 16;

// Registers 0 to 3 are accumulators. Products of complete blocks have A in 4 and 5 and B in 6 and
// 7; if the last block is shorter, complete blocks use 4 and 5 and the last one 6 and 7.
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

// Holds the shapes of the tile registers. They are released at the end, so that context switches
// need not save them and other libraries do not find these shapes.
class TileShapes {
 public:
  TileShapes() = default;
  ~TileShapes() {
    if (shape_ >= 0) asm volatile("tilerelease");
  }
  TileShapes(const TileShapes&) = delete;
  TileShapes& operator=(const TileShapes&) = delete;

  // Sets shapes for products whose last block has `last_words` words (0: it is complete) and row
  // tiles of `rows0` and `rows1` rows; fewer rows take less time. Clears all tiles.
  TANDEM_INLINE void Use(int64_t last_words, int64_t rows0, int64_t rows1) {
    // A single complete row tile uses the shapes of two.
    if (rows0 == kTileRows && rows1 == 0) rows1 = kTileRows;
    const int64_t shape = last_words << 16 | rows0 << 8 | rows1;
    if (shape != shape_) Load(last_words, rows0, rows1);
    shape_ = shape;
  }

 private:
  struct Config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  };

  static void Load(int64_t last_words, int64_t rows0, int64_t rows1) {
    alignas(64) Config config = {};
    config.palette = 1;
    const auto shape = [&](int tile, int64_t rows, int64_t words) {
      config.row_bytes[tile] = static_cast<uint16_t>(words * 4);
      config.rows[tile] = static_cast<uint8_t>(rows);
    };
    const bool narrow = last_words > 0;
    // A single row tile uses all four accumulators.
    for (int tile = 0; tile < 4; ++tile) shape(tile, tile < 2 || rows1 == 0 ? rows0 : rows1, 16);
    shape(4, rows0, 16);
    shape(5, narrow || rows1 == 0 ? kTileRows : rows1, 16);
    shape(6, narrow ? rows0 : kTileRows, narrow ? last_words : 16);
    shape(7, narrow ? last_words : kTileRows, 16);
    asm volatile("ldtilecfg %0" ::"m"(config));
  }

  int64_t shape_ = -1;
};

}  // namespace

// The GEMM of numerics class amx32: blocks of up to 2 x 2 or 1 x 4 tiles of 16 x 16 accumulators
// over the whole k. tdpbf16ps adds 32 elements of k at a time: the even and the odd ones in two
// chains of fp32 multiply-adds from zero, then both to the accumulator (gemm_amx_emulated.h
// expresses this with vectors). Blocks of 32 are added in ascending k; a shorter last block is a
// shorter tile. Therefore no result depends on how rows and panels are divided.

namespace {

// The A tiles of 16 rows: block kb is at first + kb * step, its rows are `stride` bytes apart.
struct TileRowsA {
  const std::byte* first;
  int64_t stride;
  int64_t step;
};

// Copies a panel of Aᵀ into tiles.
void PackPanelTiles(const std::byte* panel, int64_t words, std::byte* tiles) {
  for (int64_t word = 0; word < words; word += kTileWords, tiles += kTileBytes) {
    __m512i lanes[16];
    for (int64_t i = 0; i < 16; ++i) {
      lanes[i] =
          word + i < words ? _mm512_loadu_si512(panel + (word + i) * 64) : _mm512_setzero_si512();
    }
    TransposeWords(lanes);
    for (int64_t i = 0; i < 16; ++i) _mm512_storeu_si512(tiles + i * 64, lanes[i]);
  }
}

// Copies rows of odd length into tiles: their last word has only one element.
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

// Prepares A of rows [row, row + rows), at most 16; `tiles` has room for a copy.
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
  if (call.k % 2 == 0) return {a + row * row_bytes, row_bytes, 64};
  PackRowTiles(a + row * row_bytes, row_bytes, rows, call.k, tiles);
  return {tiles, 64, kTileBytes};
}

// One block of tiles of C: rows [row, row + rows) by panels from `panel` on.
struct TileBlock {
  int64_t row, rows, panel;
  TileRowsA a[2];
  // For a B beyond L2: of every tile, prefetch these lines of the tile that is this far ahead.
  int64_t ahead, first_line, last_line;
  // The blocks of k to add now. Unless they are the first ones, sums start from `sums`; unless they
  // are the last ones, sums are stored there. [4 tiles]
  int64_t kb0, kb1;
  float* sums;
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
  if (in_place && call.n - col >= 16) {
    float* c = static_cast<float*>(call.c) + range.row * call.c_stride + col;
    return TileStore<kTile>(c, call.c_stride * 4);
  }
  alignas(64) float tile[256];
  TileStore<kTile>(tile, 64);
  StoreTile<BfloatBits>(call, range, tile);
}

// Stores two complete panels from the accumulators kTile and kTile + 1, rounded: a cache line per
// row.
template <int kTile>
TANDEM_INLINE void StoreRoundedPair(const GemmCall& call, TileRange range) {
  alignas(64) float tiles[2][256];
  TileStore<kTile>(tiles[0], 64);
  TileStore<kTile + 1>(tiles[1], 64);
  const int64_t col = range.panel * 16;
  BfloatBits* c = static_cast<BfloatBits*>(call.c) + range.row * call.c_stride + col;
  F32x16 bias[2] = {Zero(), Zero()};
  if (call.bias != nullptr) {
    for (int i = 0; i < 2; ++i) {
      bias[i] = Load(static_cast<const BfloatBits*>(call.bias) + col + i * 16);
    }
  }
  for (int64_t m = 0; m < range.rows; ++m, c += call.c_stride) {
    F32x16 low = Load(tiles[0] + m * 16), high = Load(tiles[1] + m * 16);
    if (call.bias != nullptr) {
      low = Add(low, bias[0]);
      high = Add(high, bias[1]);
    }
    StorePair(c, low, high);
  }
}

TANDEM_INLINE void FetchLines(const std::byte* tile, int64_t first, int64_t last) {
  for (int64_t line = first; line < last; ++line) {
    _mm_prefetch(reinterpret_cast<const char*>(tile) + line * 64, _MM_HINT_T1);
  }
}

// kRowTiles by kPanels accumulators; with two row tiles, row tile r and panel p use accumulator 2r
// + p, with one row tile p.
template <int kRowTiles, int kPanels>
struct TileProduct {
  static_assert(kRowTiles * kPanels <= 4);

  // Adds a complete block of k, if all blocks are complete.
  static TANDEM_INLINE void Step(const TileBlock& block,
                                 int64_t kb,
                                 const std::byte* b,
                                 int64_t panel_bytes) {
    TileLoad<6>(b, 64);
    if constexpr (kPanels > 1) TileLoad<7>(b + panel_bytes, 64);
    TileLoad<4>(block.a[0].first + kb * block.a[0].step, block.a[0].stride);
    TileDot<0, 4, 6>();
    if constexpr (kPanels > 1) TileDot<1, 4, 7>();
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
    ForEachSum(
        block, [&]<int kSum>(TileRange range) __attribute__((always_inline)) {
          if (block.kb0 == 0) {
            LoadSums<kSum>(call, range);
          } else {
            TileLoad<kSum>(block.sums + kSum * 256, 64);
          }
        });
    const std::byte* b = call.b + block.panel * call.panel_bytes + block.kb0 * kTileBytes;
    if (last_words == 0) {
      Steps(block, b, call.panel_bytes);
    } else {
      for (int64_t kb = 0; kb < whole; ++kb, b += kTileBytes) {
        NarrowStep<4, 5>(block, kb, b, call.panel_bytes);
      }
      NarrowStep<6, 7>(block, whole, b, call.panel_bytes);
    }
    if (block.kb1 < whole) {
      ForEachSum(
          block, [&]<int kSum>(TileRange) __attribute__((always_inline)) {
            TileStore<kSum>(block.sums + kSum * 256, 64);
          });
    } else if (kPanels % 2 == 0 && call.output == GemmCall::Output::kRounded &&
               call.adapters == nullptr && (block.panel + kPanels) * 16 <= call.n) {
      StorePairs(call, block);
    } else {
      ForEachSum(
          block, [&]<int kSum>(TileRange range)
                     __attribute__((always_inline)) { StoreSums<kSum>(call, range); });
    }
  }

  static TANDEM_INLINE void Steps(const TileBlock& block, const std::byte* b, int64_t panel_bytes) {
    if (block.last_line == 0) {
      for (int64_t kb = block.kb0; kb < block.kb1; ++kb, b += kTileBytes) {
        Step(block, kb, b, panel_bytes);
      }
      return;
    }
    for (int64_t kb = block.kb0; kb < block.kb1; ++kb, b += kTileBytes) {
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        FetchLines(b + p * panel_bytes + block.ahead, block.first_line, block.last_line);
      }
      Step(block, kb, b, panel_bytes);
    }
  }

  static TANDEM_INLINE void StorePairs(const GemmCall& call, const TileBlock& block) {
    ForEachSum(
        block, [&]<int kSum>(TileRange range) __attribute__((always_inline)) {
          if constexpr (kSum % 2 == 0 && kSum < 3) StoreRoundedPair<kSum>(call, range);
        });
  }
};

// Computes panels up to `panel1` for up to 32 rows. block.sums must have room for their
// accumulators.
TANDEM_INLINE void RunTileRows(const GemmCall& call, TileBlock block, int64_t panel1) {
  if (block.rows > kTileRows) {
    for (; block.panel + 2 <= panel1; block.panel += 2, block.sums += 4 * 256) {
      TileProduct<2, 2>::Run(call, block);
    }
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

// Bytes of B per pass over the rows, which stay in L2 together with A.
constexpr int64_t kPassBytes = int64_t{3} << 18;
// Panels per pass if B comes from beyond L2 and there are few rows: every row block of a pass
// prefetches its share of the next pass, so that memory is always busy.
constexpr int64_t kMemoryPanels = 4;
constexpr int64_t kMemoryRows = 256;
// Number of blocks of k for which A of 32 rows and B of two panels fit into L1 together: A then
// stays there while the panels pass, and their sums wait in memory for the next blocks of k.
constexpr int64_t kChunkBlocks = 10;
// A product with a larger B reads it from beyond L2. Prefetching what is in L2 would cost a third
// of the speed, because tile loads already fill the load ports.
constexpr int64_t kCachedBytes = int64_t{3} << 19;

template <>
class GemmContext<BfloatBits> {
 public:
  static constexpr int64_t kSumUnit = 32;
  static constexpr GemmCut kCut = {.a_elements = kPassBytes / 2,
                                   .b_elements = kPassBytes / 2,
                                   .min_rows = 64,
                                   .row_unit = 2 * kTileRows,
                                   .min_panels = 8,
                                   .panel_unit = 2};

  void Run(const GemmCall& call, int64_t row0, int64_t row1, int64_t panel0, int64_t panel1) {
    const int64_t blocks = (call.k + 31) / 32, last_words = (call.k % 32 + 1) / 2;
    const bool few_from_memory =
        row1 - row0 <= kMemoryRows &&
        (call.b_is_cold || (call.n + 15) / 16 * call.panel_bytes > kCachedBytes);
    const int64_t pass = few_from_memory
                             ? kMemoryPanels
                             : Larger(kPassBytes / (blocks * kTileBytes) / 4 * 4, int64_t{4});
    const int64_t row_blocks = (row1 - row0 + 2 * kTileRows - 1) / (2 * kTileRows);
    for (int64_t panel = panel0; panel < panel1; panel += pass) {
      TileBlock block = {row0, 0, panel, {}, pass * call.panel_bytes, 0, 0, 0, blocks, nullptr};
      for (int64_t i = 0; block.row < row1; block.row += block.rows, ++i) {
        block.rows = Smaller(row1 - block.row, 2 * kTileRows);
        // Both row tiles of a narrow product use the same registers, which have one shape.
        if (last_words > 0 && block.rows < 2 * kTileRows) {
          block.rows = Smaller(block.rows, kTileRows);
        }
        if (few_from_memory) {
          block.first_line = 16 * i / row_blocks;
          block.last_line = 16 * (i + 1) / row_blocks;
        }
        RunBlock(call, block, last_words, Smaller(panel1, panel + pass));
      }
    }
  }

 private:
  void RunBlock(const GemmCall& call, TileBlock block, int64_t last_words, int64_t panel1) {
    static thread_local WideBuffer copies, sums;
    const int64_t rows0 = Smaller(block.rows, kTileRows), rows1 = block.rows - rows0;
    const int64_t blocks = block.kb1, bytes = blocks * kTileBytes;
    const bool copied = call.a_panel_bytes != 0 || call.k % 2 != 0;
    std::byte* tiles = copied ? copies.Get(2 * bytes) : nullptr;
    shapes_.Use(last_words, rows0, rows1);
    block.a[0] = PrepareTiles(call, block.row, rows0, tiles);
    if (rows1 > 0) block.a[1] = PrepareTiles(call, block.row + kTileRows, rows1, tiles + bytes);
    const bool chunked = rows1 > 0 && last_words == 0 && panel1 - block.panel > 2;
    const int64_t chunks = chunked ? (blocks + kChunkBlocks - 1) / kChunkBlocks : 1;
    if (chunks > 1) {
      const int64_t pairs = (panel1 - block.panel + 1) / 2;
      block.sums = reinterpret_cast<float*>(sums.Get(pairs * 4 * kTileBytes));
    }
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      block.kb0 = blocks * chunk / chunks;
      block.kb1 = blocks * (chunk + 1) / chunks;
      RunTileRows(call, block, panel1);
    }
  }

  TileShapes shapes_;
};

}  // namespace

}  // namespace tandem
