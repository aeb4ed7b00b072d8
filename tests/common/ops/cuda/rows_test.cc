#include "common/ops/cuda/rows/rows.h"

#include <cmath>

#include <catch2/catch.hpp>

#include "tests/common/ops/cuda/kernel_fixture.h"
#include "tests/common/ops/ops_fixture.h"

namespace tandem {
namespace {
using testing::kBf16;
using testing::Part;
using testing::ScopedSeed;
using testing::TestMatrix;

NormRows Norm(int64_t rows, const TestMatrix& weight) {
  return {.rows = rows, .cols = weight.cols(), .first = weight.data(), .eps = 1e-6f};
}
}  // namespace

TEST_CASE("Elementwise kernels give the bits of the CPU's", "[cuda][rows]") {
  const auto cpu = testing::MakeForward(kBf16);
  for (const uint64_t seed : testing::TwoSeeds()) {
    const ScopedSeed scoped(seed);
    for (const int64_t cols : {8, 72, 1040}) {
      const TestMatrix x = TestMatrix::Random(kBf16, 5, cols, 1, 3.0f);
      const TestMatrix delta = TestMatrix::Random(kBf16, 5, cols, 2);
      TestMatrix here = x, there = x;
      LaunchAdd(nullptr, here.view(), delta.view());
      cpu->Add(there.view(), delta.view());
      REQUIRE(here.SameBits(there));

      const TestMatrix gate_up = TestMatrix::Random(kBf16, 5, 2 * cols, 3, 8.0f);
      LaunchSiluMul(nullptr, gate_up.view(), here.view());
      cpu->SiluMul(gate_up.view(), there.view());
      REQUIRE(here.SameBits(there));
    }
  }
}

TEST_CASE("Rows are taken by number, of a wider matrix as well", "[cuda][rows]") {
  const TestMatrix from = TestMatrix::Random(kBf16, 6, 160, 1);
  const std::vector<int32_t> rows = {5, 0, 0, 3};
  TestMatrix out(kBf16, 4, 136);
  LaunchTakeRows(nullptr, Part(from.view(), 16, 136), rows.data(), out.view());
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t col = 0; col < 136; ++col) {
      REQUIRE(out.At(i, col) == from.At(rows[static_cast<size_t>(i)], col + 16));
    }
  }
}

TEST_CASE("RMS norms agree with double sums to the last rounding", "[cuda][rows]") {
  // Every shape of rows, and columns that leave threads without work.
  for (const int64_t cols : {8, 64, 72, 128, 200, 256, 576, 1024, 1536, 2056, 9216}) {
    const TestMatrix in = TestMatrix::Random(kBf16, 3, cols, 1, 2.0f);
    const TestMatrix weight = TestMatrix::Random(kBf16, 1, cols, 2);
    TestMatrix out(kBf16, 3, cols);
    LaunchRmsNorm(nullptr, Norm(3, weight), in.view(), out.view());
    for (int64_t row = 0; row < 3; ++row) {
      double squares = 0;
      for (int64_t col = 0; col < cols; ++col) {
        squares += static_cast<double>(in.At(row, col)) * static_cast<double>(in.At(row, col));
      }
      const double scale = 1.0 / std::sqrt(squares / static_cast<double>(cols) + 1e-6);
      for (int64_t col = 0; col < cols; ++col) {
        const double expected =
            static_cast<double>(in.At(row, col)) * scale * static_cast<double>(weight.At(0, col));
        // Rounded twice to eight bits.
        REQUIRE(std::fabs(static_cast<double>(out.At(row, col)) - expected) <=
                0x1p-8 * 2.02 * std::fabs(expected));
      }
    }
  }
}

TEST_CASE("A row's norm does not depend on the rows beside it", "[cuda][rows]") {
  constexpr int64_t kRows = 19;
  for (const int64_t cols : {64, 128, 256, 1024, 1536}) {
    const TestMatrix in = TestMatrix::Random(kBf16, kRows, cols, 1, 2.0f);
    const TestMatrix weight = TestMatrix::Random(kBf16, 1, cols, 2);
    TestMatrix full(kBf16, kRows, cols);
    LaunchRmsNorm(nullptr, Norm(kRows, weight), in.view(), full.view());
    for (const uint64_t seed : testing::TwoSeeds()) {
      const ScopedSeed scoped(seed);
      for (const int64_t m : {1, 2, 3, 8, 16, 17}) {
        const int64_t first = m % 3;
        TestMatrix part(kBf16, m, cols);
        LaunchRmsNorm(nullptr, Norm(m, weight), in.Rows(first, m), part.view());
        for (int64_t row = 0; row < m; ++row) REQUIRE(part.SameRow(row, full, first + row));
      }
    }
    TestMatrix in_place = in;
    LaunchRmsNorm(nullptr, Norm(kRows, weight), in_place.view(), in_place.view());
    REQUIRE(in_place.SameBits(full));
  }
}

TEST_CASE("All heads at once are normed as each head by itself", "[cuda][rows]") {
  constexpr int64_t kRows = 5, kHeads = 3, kFirst = 2;
  for (const int64_t dim : {64, 128}) {
    const TestMatrix in = TestMatrix::Random(kBf16, kRows, (kHeads + 1) * dim, 1, 2.0f);
    const TestMatrix q = TestMatrix::Random(kBf16, 1, dim, 2);
    const TestMatrix k = TestMatrix::Random(kBf16, 1, dim, 3);
    TestMatrix by_head = in;
    for (int64_t head = 0; head < kHeads; ++head) {
      const Matrix part = Part(by_head.view(), head * dim, dim);
      LaunchRmsNorm(nullptr, Norm(kRows, head < kFirst ? q : k), part, part);
    }
    NormRows norm = Norm(kRows, q);
    norm.heads = kHeads;
    norm.first_heads = kFirst;
    norm.second = k.data();
    for (const uint64_t seed : testing::TwoSeeds()) {
      const ScopedSeed scoped(seed);
      TestMatrix at_once = in;
      LaunchRmsNorm(nullptr, norm, at_once.view(), at_once.view());
      REQUIRE(at_once.SameBits(by_head));
    }
  }
}

TEST_CASE("A sum and its norm in one kernel have the bits of two", "[cuda][rows]") {
  for (const int64_t cols : {128, 1024, 2048}) {
    const TestMatrix start = TestMatrix::Random(kBf16, 5, cols, 1, 2.0f);
    const TestMatrix delta = TestMatrix::Random(kBf16, 5, cols, 2);
    const TestMatrix weight = TestMatrix::Random(kBf16, 1, cols, 3);
    TestMatrix x = start, norm(kBf16, 5, cols), fused_x = start, fused(kBf16, 5, cols);
    LaunchAdd(nullptr, x.view(), delta.view());
    LaunchRmsNorm(nullptr, Norm(5, weight), x.view(), norm.view());
    LaunchAddRmsNorm(nullptr, Norm(5, weight), fused_x.view(), delta.view(), fused.view());
    REQUIRE(fused_x.SameBits(x));
    REQUIRE(fused.SameBits(norm));
  }
}

}  // namespace tandem
