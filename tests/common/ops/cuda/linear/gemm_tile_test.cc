// How products are cut into tiles: index arithmetic that the kernels share.
#include "common/ops/cuda/linear/gemm_tile.h"

#include <set>
#include <utility>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

constexpr GemmTile kTilesOfShapes[] = {GemmTile::k16x32, GemmTile::k32x32, GemmTile::k64x32,
                                       GemmTile::k64x64, GemmTile::k128x128};

TEST_CASE("Every tile of a product is computed by one block", "[ops][cuda][gemm]") {
  for (const auto& [tiles_m, tiles_n] :
       {std::pair{1u, 1u}, {1u, 9u}, {7u, 3u}, {8u, 5u}, {9u, 4u}, {23u, 2u}, {40u, 40u}}) {
    std::set<std::pair<int, int>> seen;
    for (unsigned block = 0; block < tiles_m * tiles_n; ++block) {
      const TilePlace place = PlaceOf(block, tiles_m, tiles_n);
      REQUIRE(place.m >= 0);
      REQUIRE(place.m < static_cast<int>(tiles_m));
      REQUIRE(place.n >= 0);
      REQUIRE(place.n < static_cast<int>(tiles_n));
      seen.insert({place.m, place.n});
    }
    REQUIRE(seen.size() == size_t{tiles_m} * tiles_n);
  }
}

TEST_CASE("Blocks that run side by side share rows and columns", "[ops][cuda][gemm]") {
  // 64 blocks in a row touch 8 tiles of rows and 8 of columns, not 64 of either.
  std::set<int> rows, cols;
  for (unsigned block = 0; block < 64; ++block) {
    const TilePlace place = PlaceOf(block, 32, 32);
    rows.insert(place.m);
    cols.insert(place.n);
  }
  REQUIRE(rows.size() == 8);
  REQUIRE(cols.size() == 8);
}

TEST_CASE("Swizzled chunks fill a tile, and no matrix of 8 rows meets in a bank",
          "[ops][cuda][gemm]") {
  for (const int chunks : {8, 16}) {
    std::set<int> elements;
    for (int row = 0; row < 64; ++row) {
      for (int chunk = 0; chunk < chunks; ++chunk) {
        elements.insert(SwizzledElement(row, chunk, chunks));
      }
    }
    REQUIRE(static_cast<int>(elements.size()) == 64 * chunks);
    REQUIRE(*elements.rbegin() == 64 * chunks * 8 - 8);
    // ldmatrix reads 16 bytes of 8 lines at once: 8 different sixteenths of 128 bytes.
    for (int chunk = 0; chunk < chunks; ++chunk) {
      std::set<int> banks;
      for (int row = 8; row < 16; ++row) banks.insert(SwizzledElement(row, chunk, chunks) / 8 % 8);
      REQUIRE(banks.size() == 8);
    }
  }
}

TEST_CASE("Tiles fit an A100's multiprocessor, the widest twice an H100's", "[ops][cuda][gemm]") {
  for (const GemmTile tile : kTilesOfShapes) {
    REQUIRE(ShapeOf(tile).shared_bytes() <= 163 * 1024);
    REQUIRE(ShapeOf(tile).threads() % 32 == 0);
    REQUIRE(ShapeOf(tile).threads() <= 256);
  }
  REQUIRE(2 * (ShapeOf(GemmTile::k128x128).shared_bytes() + 1024) <= 228 * 1024);
  REQUIRE(ShapeOf(GemmTile::k16x32).shared_bytes() == 48 * 1024);
}

TEST_CASE("The tile follows from sizes: enough blocks first, width second", "[ops][cuda][gemm]") {
  const auto forward = [](int64_t m, int64_t n) {
    return ChooseTile(GemmKind::kForward, m, n, 132);
  };
  REQUIRE(forward(1, 4096) == GemmTile::k16x32);
  REQUIRE(forward(16, 151936) == GemmTile::k16x32);
  REQUIRE(forward(17, 4096) == GemmTile::k32x32);
  REQUIRE(forward(64, 4096) == GemmTile::k64x32);
  REQUIRE(forward(64, 24576) == GemmTile::k64x64);
  REQUIRE(forward(256, 4096) == GemmTile::k64x64);
  REQUIRE(forward(4096, 4096) == GemmTile::k128x128);
  // The backward kinds have the two widest alone.
  REQUIRE(ChooseTile(GemmKind::kInput, 1, 4096, 132) == GemmTile::k64x64);
  REQUIRE(ChooseTile(GemmKind::kWeights, 1024, 1024, 132) == GemmTile::k64x64);
  REQUIRE(ChooseTile(GemmKind::kWeights, 4096, 4096, 132) == GemmTile::k128x128);
}

}  // namespace
}  // namespace tandem
