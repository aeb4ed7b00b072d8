#include <cmath>

#include <catch2/catch.hpp>

#include "tests/common/ops/ops_fixture.h"

namespace tandem {
namespace {
using testing::TestMatrix;
using testing::TestWeight;

// vdpbf16ps in plain C: the odd element of a pair, then the even one.
float SeqDot(const TestMatrix& a, int64_t row, const TestMatrix& w, int64_t n) {
  float sum = 0;
  for (int64_t k = 0; k < a.cols(); k += 2) {
    if (k + 1 < a.cols()) sum = std::fma(a.At(row, k + 1), w.At(n, k + 1), sum);
    sum = std::fma(a.At(row, k), w.At(n, k), sum);
  }
  return sum;
}

// tdpbf16ps in plain C: 32 elements at a time, the even and the odd ones in a chain each.
float TileDot(const TestMatrix& a, int64_t row, const TestMatrix& w, int64_t n) {
  float sum = 0;
  for (int64_t first = 0; first < a.cols(); first += 32) {
    float chains[2] = {0, 0};
    for (int64_t k = first; k < std::min(a.cols(), first + 32); ++k) {
      chains[k % 2] = std::fma(a.At(row, k), w.At(n, k), chains[k % 2]);
    }
    sum += chains[0] + chains[1];
  }
  return sum;
}
}  // namespace

TEST_CASE("Linear in bf16 is the documented order of sums, rounded once", "[ops][linear]") {
  for (const bool tiles : {false, true}) {
    for (const std::string& isa : testing::RunnableIsas(tiles ? "amx32" : "seq")) {
      const testing::ForcedIsa forced(isa);
      const std::unique_ptr<ForwardOps> ops = testing::MakeForward(DType::kBFloat16, 2);
      for (const auto [m, n, k] : {std::array<int64_t, 3>{3, 16, 32},
                                   {13, 50, 33},
                                   {70, 130, 75},
                                   {1, 7, 1},
                                   {9, 49, 24},
                                   {40, 65, 128},
                                   {40, 33, 576},
                                   {17, 33, 1536}}) {
        for (const bool bias : {false, true}) {
          const TestWeight weight(DType::kBFloat16, n, k, 5, 0.3f, bias);
          const TestMatrix in = TestMatrix::Random(DType::kBFloat16, m, k, 7);
          const TestMatrix out(DType::kBFloat16, m, n);
          ops->Linear(in.view(), weight.view(), out.view());
          INFO(isa << " " << m << " x " << n << " x " << k);
          bool same = true;
          for (int64_t i = 0; i < m; ++i) {
            for (int64_t j = 0; j < n; ++j) {
              const float dot =
                  tiles ? TileDot(in, i, weight.source, j) : SeqDot(in, i, weight.source, j);
              const float sum = dot + (bias ? weight.bias.At(0, j) : 0.0f);
              same = same && out.At(i, j) == FromBf16(ToBf16(sum));
            }
          }
          REQUIRE(same);
        }
      }
    }
  }
}

TEST_CASE("Linear in fp32 agrees with a double reference", "[ops][linear]") {
  const std::unique_ptr<ForwardOps> ops = testing::MakeForward(DType::kFloat32, 2);
  const TestWeight weight(DType::kFloat32, 45, 71, 5, 0.3f, true);
  const TestMatrix in = TestMatrix::Random(DType::kFloat32, 19, 71, 7);
  const TestMatrix out(DType::kFloat32, 19, 45);
  ops->Linear(in.view(), weight.view(), out.view());
  for (int64_t i = 0; i < 19; ++i) {
    for (int64_t j = 0; j < 45; ++j) {
      double sum = static_cast<double>(weight.bias.At(0, j));
      for (int64_t k = 0; k < 71; ++k) {
        sum += static_cast<double>(in.At(i, k)) * static_cast<double>(weight.source.At(j, k));
      }
      REQUIRE(out.At(i, j) == Approx(sum).margin(2e-6));
    }
  }
}

TEST_CASE("A row of Linear depends neither on the other rows nor on threads", "[ops][linear]") {
  for (const std::string& isa : testing::RunnableIsas()) {
    const testing::ForcedIsa forced(isa);
    for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
      const int64_t n = 150, k = 90, rows = 1031;
      const TestWeight weight(dtype, n, k, 5, 0.3f);
      const TestMatrix in = TestMatrix::Random(dtype, rows, k, 7);
      const TestMatrix full(dtype, rows, n);
      testing::MakeForward(dtype, 1)->Linear(in.view(), weight.view(), full.view());
      for (const int threads : {1, 2, 3}) {
        const std::unique_ptr<ForwardOps> ops = testing::MakeForward(dtype, threads);
        for (int64_t m = 1; m <= 1024; m = m < 70 ? m + 1 : m * 2 - 5) {
          const TestMatrix part(dtype, m, n);
          const int64_t first = m % 7;
          ops->Linear(in.Rows(first, m), weight.view(), part.view());
          INFO(isa << ", " << threads << " threads, " << m << " rows");
          for (int64_t i = 0; i < m; ++i) REQUIRE(part.SameRow(i, full, first + i));
        }
        const TestMatrix again(dtype, rows, n);
        ops->Linear(in.view(), weight.view(), again.view());
        REQUIRE(again.SameBits(full));
      }
    }
  }
}

TEST_CASE("Rows do not depend on whether weights are thought to come from memory",
          "[ops][linear]") {
  const TestWeight weight(DType::kBFloat16, 1500, 576, 5, 0.3f);  // more than counts as cached
  const TestMatrix in = TestMatrix::Random(DType::kBFloat16, 300, 576, 7);
  for (const std::string& isa : testing::RunnableIsas()) {
    const testing::ForcedIsa forced(isa);
    const std::unique_ptr<ForwardOps> ops = testing::MakeForward(DType::kBFloat16, 2);
    const TestMatrix all(DType::kBFloat16, 300, 1500);
    ops->Linear(in.view(), weight.view(), all.view());
    for (const int64_t rows : {1, 16, 31, 33, 64, 100, 256}) {
      INFO(isa << ", " << rows << " rows");
      const TestMatrix some(DType::kBFloat16, rows, 1500);
      ops->Linear(in.Rows(300 - rows, rows), weight.view(), some.view());
      bool same = true;
      for (int64_t i = 0; i < rows; ++i) same = same && some.SameRow(i, all, 300 - rows + i);
      REQUIRE(same);
    }
  }
}

}  // namespace tandem
