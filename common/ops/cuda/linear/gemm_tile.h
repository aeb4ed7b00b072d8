// How a matrix product is divided into tiles, and where a tile's elements are in shared memory.
// Used by the kernels (gemm.cu), by their launchers and by tests. Plain integers.
//
// The sum over k of one element of c is one fp32 accumulator that takes k in ascending steps of 16
// (one tensor-core instruction each), with zeros up to the next multiple of kTileK, in every tile
// shape. Therefore a row has the same bits in every tile, at every place in it, and with any other
// rows.
#pragma once

#include <cstdint>

#include "common/ops/cuda/linear/gemm.h"

#ifdef __CUDACC__
#define TANDEM_HOST_DEVICE __host__ __device__
#else
#define TANDEM_HOST_DEVICE
#endif

namespace tandem {

inline constexpr int kTileK = 64;  // of k at a time: 128 bytes of a row

// Rows and columns of c that one block computes; warps, each with an equal part; and the number of
// k steps whose copies are in flight or in use.
struct TileShape {
  int m, n, warps_m, warps_n, stages;
  constexpr int threads() const { return warps_m * warps_n * 32; }
  constexpr int stage_bytes() const { return (m + n) * kTileK * 2; }
  // The result passes through the same memory, in rows of n + 8 elements.
  constexpr int shared_bytes() const {
    const int result = m * (n + 8) * 4;
    return stages * stage_bytes() > result ? stages * stage_bytes() : result;
  }
};

enum class GemmTile { k16x32, k32x32, k64x32, k64x64, k128x128 };

// The first three are for the few rows of a decode step, whose time is dominated by reading b: they
// are narrow, so that every multiprocessor gets a block, and deep, so that each has enough copies
// in flight.
constexpr TileShape ShapeOf(GemmTile tile) {
  switch (tile) {
    case GemmTile::k16x32:
      return {16, 32, 1, 2, 8};
    case GemmTile::k32x32:
      return {32, 32, 2, 2, 6};
    case GemmTile::k64x32:
      return {64, 32, 2, 2, 6};
    case GemmTile::k64x64:
      return {64, 64, 2, 2, 4};
    case GemmTile::k128x128:
      break;
  }
  return {128, 128, 2, 4, 3};
}

constexpr int64_t TilesOf(int64_t elements, int tile) { return (elements + tile - 1) / tile; }
constexpr int64_t BlocksOf(GemmTile tile, int64_t m, int64_t n) {
  return TilesOf(m, ShapeOf(tile).m) * TilesOf(n, ShapeOf(tile).n);
}

// The widest tile that gives every multiprocessor a block: any tile for kForward, one of the two
// widest for the other kinds. Depends on sizes alone.
constexpr GemmTile ChooseTile(GemmKind kind, int64_t m, int64_t n, int multiprocessors) {
  const bool forward = kind == GemmKind::kForward;
  if (forward && m <= 16) return GemmTile::k16x32;
  if (forward && m <= 32) return GemmTile::k32x32;
  if (m > 64 && BlocksOf(GemmTile::k128x128, m, n) >= multiprocessors) return GemmTile::k128x128;
  if (!forward || BlocksOf(GemmTile::k64x64, m, n) >= multiprocessors) return GemmTile::k64x64;
  return GemmTile::k64x32;
}

// The tile that block `block` of a grid computes: bands of 8 tiles along m, so that blocks that run
// at the same time share rows of a and columns of b in the L2 cache.
struct TilePlace {
  int m, n;
};
TANDEM_HOST_DEVICE constexpr TilePlace PlaceOf(unsigned block, unsigned tiles_m, unsigned tiles_n) {
  constexpr unsigned kBand = 8;
  const unsigned band = block / (kBand * tiles_n), first = band * kBand;
  const unsigned height = tiles_m - first < kBand ? tiles_m - first : kBand;
  const unsigned in_band = block - first * tiles_n;
  return {static_cast<int>(first + in_band % height), static_cast<int>(in_band / height)};
}

// The place, in elements, of chunk `chunk` (8 elements, 16 bytes) of line `line` in a tile with
// `chunks` chunks per line (a multiple of 8): the lines of one 8x8 matrix are in different banks.
TANDEM_HOST_DEVICE constexpr int SwizzledElement(int line, int chunk, int chunks) {
  return (line * chunks + (chunk ^ (line & 7))) * 8;
}

}  // namespace tandem
