// Tile registers: loads, stores, products and shapes. The instructions are written in assembly, so
// that files need no compiler flag for them.
#pragma once

#include "common/ops/cpu/kernels/vec_common.h"

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
    if (shape_ >= 0) asm volatile("tilerelease");
  }
  TileShapes(const TileShapes&) = delete;
  TileShapes& operator=(const TileShapes&) = delete;

  // For products whose last block has `last_words` words (0: it is whole) and row tiles of `rows0`
  // and `rows1` rows. Fewer rows take less time. Clears all tiles.
  TANDEM_INLINE void Use(int64_t last_words, int64_t rows0, int64_t rows1) {
    // One whole row tile computes with the shapes of two.
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
    // One row tile has all four accumulators.
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
}  // namespace tandem
