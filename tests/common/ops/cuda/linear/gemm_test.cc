// The tensor-core kernels, on the emulator, against plain loops and against themselves.
#include <array>
#include <cmath>
#include <cstring>

#include <catch2/catch.hpp>

#include "common/ops/cuda/linear/gemm_kernels.h"
#include "tests/common/ops/cuda/linear/gemm_fixture.h"
#include "tests/emulator/scoped_seed.h"

namespace tandem {
namespace {

using testing::DeviceMatrix;

constexpr GemmTile kTiles[] = {GemmTile::k16x32, GemmTile::k32x32, GemmTile::k64x32,
                               GemmTile::k64x64, GemmTile::k128x128};
constexpr GemmTile kWideTiles[] = {GemmTile::k64x64, GemmTile::k128x128};

Gemm ForwardOfGemm(Matrix in, const LinearWeight& weight, const DeviceMatrix& out) {
  return {.kind = GemmKind::kForward,
          .output = GemmOutput::kBf16,
          .m = in.rows,
          .n = weight.rows,
          .k = weight.cols,
          .a = in.data,
          .a_stride = in.stride,
          .b = weight.values,
          .b_stride = weight.cols,
          .bias = weight.bias,
          .c = out.data(),
          .c_stride = out.stride()};
}

TEST_CASE("A forward product is fp32 sums and the bias, rounded once", "[ops][cuda][gemm]") {
  for (const uint64_t seed : testing::TwoSeeds()) {
    const testing::ScopedSeed scoped(seed);
    for (const GemmTile tile : kTiles) {
      for (const auto [m, n, k] : {std::array<int64_t, 3>{1, 8, 8},
                                   {17, 40, 72},
                                   {33, 33, 64},
                                   {70, 136, 200},
                                   {3, 16, 640}}) {
        // NaN between the rows: nothing there may count.
        const DeviceMatrix in = DeviceMatrix::Random(m, k, 7, k + 16, NAN);
        const DeviceMatrix weight = DeviceMatrix::Random(n, k, 5);
        const DeviceMatrix bias = DeviceMatrix::Random(1, n, 3);
        const DeviceMatrix out(m, n, (n + 7) / 8 * 8 + 8, -77.0f);
        for (const DeviceMatrix* added : {static_cast<const DeviceMatrix*>(nullptr), &bias}) {
          const Gemm gemm = ForwardOfGemm(in.view(), weight.weight(added), out);
          cuda::LaunchGemm(gemm, tile, nullptr);
          INFO("tile " << static_cast<int>(tile) << ": " << m << " x " << n << " x " << k);
          REQUIRE(testing::WorstError(gemm, {}) < 1.0f);
          REQUIRE(out.ChangedGaps() == 0);
        }
      }
    }
  }
}

TEST_CASE("A row's bits are its own: whatever the tile, the rows, and its place among them",
          "[ops][cuda][gemm]") {
  const int64_t rows = 130, n = 72, k = 136;
  const DeviceMatrix in = DeviceMatrix::Random(rows, k, 7, k + 8);
  const DeviceMatrix weight = DeviceMatrix::Random(n, k, 5);
  const DeviceMatrix bias = DeviceMatrix::Random(1, n, 3);
  const DeviceMatrix all(rows, n);
  cuda::LaunchGemm(ForwardOfGemm(in.view(), weight.weight(&bias), all), GemmTile::k128x128,
                   nullptr);
  for (const GemmTile tile : kTiles) {
    for (const int64_t m : {1, 2, 15, 16, 17, 31, 33, 64, 65}) {
      for (const int64_t first : {m % 7, rows - m}) {
        const DeviceMatrix part(m, n);
        cuda::LaunchGemm(ForwardOfGemm(in.Rows(first, m), weight.weight(&bias), part), tile,
                         nullptr);
        INFO("tile " << static_cast<int>(tile) << ", rows " << first << " + " << m);
        for (int64_t i = 0; i < m; ++i) REQUIRE(part.SameRow(i, all, first + i));
      }
    }
  }
}

TEST_CASE("A row with an infinity or a NaN leaves the others alone", "[ops][cuda][gemm]") {
  DeviceMatrix in = DeviceMatrix::Random(20, 64, 7);
  const DeviceMatrix weight = DeviceMatrix::Random(40, 64, 5);
  const DeviceMatrix before(20, 40), after(20, 40);
  cuda::LaunchGemm(ForwardOfGemm(in.view(), weight.weight(), before), GemmTile::k32x32, nullptr);
  in.Set(3, 5, INFINITY);
  in.Set(11, 63, NAN);
  cuda::LaunchGemm(ForwardOfGemm(in.view(), weight.weight(), after), GemmTile::k32x32, nullptr);
  for (int64_t i = 0; i < 20; ++i) {
    if (i != 3 && i != 11) REQUIRE(after.SameRow(i, before, i));
  }
  REQUIRE(!std::isfinite(after.At(3, 0)));
  REQUIRE(std::isnan(after.At(11, 0)));
}

TEST_CASE("Logits are the sums themselves", "[ops][cuda][gemm]") {
  for (const GemmTile tile : kTiles) {
    // 37 ids: the last columns are written one by one.
    for (const int64_t ids : {64, 37}) {
      const DeviceMatrix in = DeviceMatrix::Random(21, 72, 7);
      const DeviceMatrix head = DeviceMatrix::Random(ids, 72, 5);
      const int64_t stride = 68;
      std::vector<float> out(static_cast<size_t>(21 * stride), -77.0f);
      Gemm gemm = ForwardOfGemm(in.view(), head.weight(), in);
      gemm.output = GemmOutput::kFloat;
      gemm.c = out.data();
      gemm.c_stride = stride;
      cuda::LaunchGemm(gemm, tile, nullptr);
      REQUIRE(testing::WorstError(gemm, {}) < 1.0f);
      for (size_t i = 0; i < out.size(); ++i) {
        if (static_cast<int64_t>(i) % stride >= ids) REQUIRE(out[i] == -77.0f);
      }
    }
  }
}

TEST_CASE("The gradient of the input sums over the weight's rows", "[ops][cuda][gemm]") {
  for (const uint64_t seed : testing::TwoSeeds()) {
    const testing::ScopedSeed scoped(seed);
    for (const GemmTile tile : kWideTiles) {
      // 37 rows of W: dout's columns up to 40 are zeros, as the contract asks.
      for (const auto [m, n, k] :
           {std::array<int64_t, 3>{19, 72, 37}, {70, 136, 200}, {1, 8, 8}, {130, 200, 64}}) {
        const DeviceMatrix dout = DeviceMatrix::Random(m, k, 7);
        const DeviceMatrix weight = DeviceMatrix::Random(k, n, 5);
        const DeviceMatrix din(m, n, n + 8, -77.0f);
        const Gemm gemm = {.kind = GemmKind::kInput,
                           .output = GemmOutput::kBf16,
                           .m = m,
                           .n = n,
                           .k = k,
                           .a = dout.data(),
                           .a_stride = dout.stride(),
                           .b = weight.data(),
                           .b_stride = n,
                           .c = din.data(),
                           .c_stride = din.stride()};
        cuda::LaunchGemm(gemm, tile, nullptr);
        INFO("tile " << static_cast<int>(tile) << ": " << m << " x " << n << " x " << k);
        REQUIRE(testing::WorstError(gemm, {}) < 1.0f);
        REQUIRE(din.ChangedGaps() == 0);
        // The last row alone, in the other tile.
        const DeviceMatrix last(1, n);
        Gemm alone = gemm;
        alone.m = 1;
        alone.a = dout.Rows(m - 1, 1).data;
        alone.c = last.data();
        alone.c_stride = last.stride();
        cuda::LaunchGemm(alone, tile == kWideTiles[0] ? kWideTiles[1] : kWideTiles[0], nullptr);
        REQUIRE(last.SameRow(0, din, m - 1));
      }
    }
  }
}

TEST_CASE("The gradient of the input is added piece by piece, a row's bits its own",
          "[ops][cuda][gemm]") {
  const int64_t rows = 70, n = 72, k = 136;
  const DeviceMatrix dout = DeviceMatrix::Random(rows, k, 7);
  const DeviceMatrix weight = DeviceMatrix::Random(k, n, 5);
  std::vector<float> first;
  for (const GemmTile tile : kWideTiles) {
    const int64_t stride = n + 4;
    std::vector<float> din(static_cast<size_t>(rows * stride), 0.5f);
    const auto add = [&](int64_t row, int64_t count) {
      const Gemm gemm = {.kind = GemmKind::kInput,
                         .output = GemmOutput::kFloatAdd,
                         .m = count,
                         .n = n,
                         .k = k,
                         .a = dout.Rows(row, count).data,
                         .a_stride = dout.stride(),
                         .b = weight.data(),
                         .b_stride = n,
                         .c = din.data() + row * stride,
                         .c_stride = stride};
      cuda::LaunchGemm(gemm, tile, nullptr);
      return gemm;
    };
    const Gemm whole = add(0, rows);
    REQUIRE(testing::WorstError(whole, std::vector<float>(static_cast<size_t>(rows * n), 0.5f)) <
            1.0f);
    for (size_t i = 0; i < din.size(); ++i) {
      if (static_cast<int64_t>(i) % stride >= n) REQUIRE(din[i] == 0.5f);
    }
    if (first.empty()) first = din;
    REQUIRE(std::memcmp(din.data(), first.data(), din.size() * sizeof(float)) == 0);
    std::fill(din.begin(), din.end(), 0.5f);
    for (const int64_t row : {0, 1, 18, 51}) {
      add(row, row == 0 ? 1 : row == 1 ? 17 : row == 18 ? 33 : 19);
    }
    REQUIRE(std::memcmp(din.data(), first.data(), din.size() * sizeof(float)) == 0);
  }
}

TEST_CASE("The gradient of the weights adds the sum over rows to what is there",
          "[ops][cuda][gemm]") {
  for (const uint64_t seed : testing::TwoSeeds()) {
    const testing::ScopedSeed scoped(seed);
    for (const auto [rows, n, k] :
         {std::array<int64_t, 3>{70, 72, 136}, {1, 8, 8}, {130, 64, 200}, {200, 40, 24}}) {
      const DeviceMatrix dout = DeviceMatrix::Random(rows, n, 7, n + 16, NAN);
      const DeviceMatrix in = DeviceMatrix::Random(rows, k, 5, k + 8, NAN);
      std::vector<float> before(static_cast<size_t>(n * k));
      for (size_t i = 0; i < before.size(); ++i) before[i] = 0.25f * static_cast<float>(i % 7);
      std::vector<float> first;
      for (const GemmTile tile : kWideTiles) {
        std::vector<float> dweight = before;
        const Gemm gemm = {.kind = GemmKind::kWeights,
                           .output = GemmOutput::kFloatAdd,
                           .m = n,
                           .n = k,
                           .k = rows,
                           .a = dout.data(),
                           .a_stride = dout.stride(),
                           .b = in.data(),
                           .b_stride = in.stride(),
                           .c = dweight.data(),
                           .c_stride = k};
        cuda::LaunchGemm(gemm, tile, nullptr);
        INFO("tile " << static_cast<int>(tile) << ": " << rows << " rows, " << n << " x " << k);
        REQUIRE(testing::WorstError(gemm, before) < 1.0f);
        // Rows ascend whatever the tile.
        if (first.empty()) first = dweight;
        REQUIRE(std::memcmp(first.data(), dweight.data(), first.size() * 4) == 0);
      }
    }
  }
}

TEST_CASE("Column sums add the rows in a fixed order", "[ops][cuda][gemm]") {
  for (const auto [rows, cols] : {std::array<int64_t, 2>{1, 8}, {31, 72}, {33, 64}, {200, 136}}) {
    const DeviceMatrix in = DeviceMatrix::Random(rows, cols, 7, cols + 8, NAN);
    std::vector<float> expected(static_cast<size_t>(cols));
    for (int64_t col = 0; col < cols; ++col) {
      float total = 0;
      for (int64_t lane = 0; lane < 32; ++lane) {
        float sum = 0;
        for (int64_t row = lane; row < rows; row += 32) sum += in.At(row, col);
        total += sum;
      }
      expected[static_cast<size_t>(col)] = 0.5f + total;
    }
    for (const uint64_t seed : testing::TwoSeeds()) {
      const testing::ScopedSeed scoped(seed);
      std::vector<float> sums(static_cast<size_t>(cols), 0.5f);
      cuda::LaunchColumnSums(in.data(), rows, cols, in.stride(), sums.data(), nullptr);
      REQUIRE(sums == expected);
    }
  }
}

}  // namespace
}  // namespace tandem
