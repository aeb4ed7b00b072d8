// Products with adapters that are not merged: the documented sums, bit for bit in every kernel set;
// rows that do not depend on their batch; gradients.
#include <limits>
#include <numeric>

#include "tests/common/ops/adapted_weight.h"
#include "tests/common/ops/ops_fixture.h"

namespace tandem {
namespace {
using testing::Adapted;
using testing::Dot;
using testing::Gather;
using testing::kBf16;
using testing::kF32;
using testing::RequireSlope;
using testing::Sums;
using testing::TestMatrix;
using testing::WeightedSum;

float Expected(const Adapted& adapted, const TestMatrix& x, int64_t row, int64_t n, bool tiles) {
  float sum = Dot(x, row, adapted.weight.source, n, tiles);
  const int part = adapted.PartOf(n);
  if (part >= 0) {
    float chain = 0;
    for (int64_t k = 0; k < adapted.rank; ++k) {
      const float t = Dot(x, row, adapted.a.source, part * adapted.rank + k, tiles);
      chain = std::fma(t, adapted.b.source.At(n, k), chain);
    }
    sum += chain * adapted.view().adapter.scaling;
  }
  if (adapted.weight.has_bias) sum += adapted.weight.bias.At(0, n);
  return FromBf16(ToBf16(sum));
}

}  // namespace

TEST_CASE("Linear with adapters is the documented order of sums, rounded once", "[ops][adapter]") {
  for (const bool tiles : {false, true}) {
    for (const std::string& isa : testing::RunnableIsas(tiles ? "amx32" : "seq")) {
      const testing::ForcedIsa forced(isa);
      const std::unique_ptr<ForwardOps> ops = testing::MakeForward(kBf16, 2);
      for (const auto [m, n, k, rank] : {std::array<int64_t, 4>{3, 16, 32, 1},
                                         {13, 50, 33, 3},
                                         {70, 130, 75, 8},
                                         {1, 7, 1, 4},
                                         {40, 96, 128, 16},
                                         {17, 161, 576, 33}}) {
        for (const bool bias : {false, true}) {
          const Adapted adapted(kBf16, n, k, rank, bias, /*hole=*/m % 2 == 0);
          const TestMatrix in = TestMatrix::Random(kBf16, m, k, 7), out(kBf16, m, n);
          ops->Linear(in.view(), adapted.view(), out.view());
          INFO(isa << " " << m << " x " << n << " x " << k << ", rank " << rank);
          bool same = true;
          for (int64_t i = 0; i < m; ++i) {
            for (int64_t j = 0; j < n; ++j) {
              same = same && out.At(i, j) == Expected(adapted, in, i, j, tiles);
            }
          }
          REQUIRE(same);
        }
      }
    }
  }
}

TEST_CASE("A row of a product with adapters does not depend on its batch", "[ops][adapter]") {
  constexpr int64_t kRows = 300;
  for (const std::string& isa : testing::RunnableIsas()) {
    const testing::ForcedIsa forced(isa);
    const Adapted adapted(kBf16, 101, 72, 8, true, false);
    const TestMatrix in = TestMatrix::Random(kBf16, kRows, 72, 1, 2.0f);
    const TestMatrix dout = TestMatrix::Random(kBf16, kRows, 101, 2);
    const TestMatrix full(kBf16, kRows, 101), dfull(kBf16, kRows, 72);
    testing::MakeForward(kBf16, 1)->Linear(in.view(), adapted.view(), full.view());
    testing::MakeBackward(kBf16, 1)->LinearInput(dout.view(), adapted.view(), dfull.view());
    std::mt19937 random(3);
    for (const int threads : {1, 2, 3}) {
      const auto forward = testing::MakeForward(kBf16, threads);
      const auto backward = testing::MakeBackward(kBf16, threads);
      for (const int64_t m : {1, 2, 5, 8, 15, 16, 17, 31, 33, 64, 129, 300}) {
        std::vector<int64_t> rows(kRows);
        std::iota(rows.begin(), rows.end(), 0);
        std::shuffle(rows.begin(), rows.end(), random);
        rows.resize(static_cast<size_t>(m));
        const TestMatrix out(kBf16, m, 101), din(kBf16, m, 72);
        const TestMatrix part = Gather(in, rows), dpart = Gather(dout, rows);
        forward->Linear(part.view(), adapted.view(), out.view());
        backward->LinearInput(dpart.view(), adapted.view(), din.view());
        INFO(isa << ", " << m << " rows, " << threads << " threads");
        for (int64_t i = 0; i < m; ++i) {
          REQUIRE(out.SameRow(i, full, rows[static_cast<size_t>(i)]));
          REQUIRE(din.SameRow(i, dfull, rows[static_cast<size_t>(i)]));
        }
      }
    }
  }
}

TEST_CASE("Adapters whose B is zero change no bit, and one that is not a number shows",
          "[ops][adapter]") {
  for (const std::string& isa : testing::RunnableIsas()) {
    const testing::ForcedIsa forced(isa);
    const auto forward = testing::MakeForward(kBf16, 2);
    const auto backward = testing::MakeBackward(kBf16, 2);
    Adapted adapted(kBf16, 65, 40, 4, false, false);
    for (int64_t row = 0; row < 65; ++row) {
      for (int64_t k = 0; k < 4; ++k) adapted.b.source.Set(row, k, 0.0f);
      // A sum that is minus zero stays so.
      for (int64_t k = 0; row == 3 && k < 40; ++k) adapted.weight.source.Set(row, k, -0x1p-100f);
    }
    adapted.b.Pack();
    adapted.weight.Pack();
    TestMatrix in = TestMatrix::Random(kBf16, 33, 40, 1);
    for (int64_t k = 0; k < 40; ++k) in.Set(5, k, 0x1p-100f);
    const TestMatrix dout = TestMatrix::Random(kBf16, 33, 65, 2);
    const TestMatrix with(kBf16, 33, 65), without(kBf16, 33, 65);
    const TestMatrix dwith(kBf16, 33, 40), dwithout(kBf16, 33, 40);
    forward->Linear(in.view(), adapted.view(), with.view());
    forward->Linear(in.view(), adapted.weight.view(), without.view());
    INFO(isa);
    REQUIRE(with.SameBits(without));
    backward->LinearInput(dout.view(), adapted.view(), dwith.view());
    backward->LinearInput(dout.view(), adapted.weight.view(), dwithout.view());
    REQUIRE(dwith.SameBits(dwithout));

    adapted.b.source.Set(9, 2, std::numeric_limits<float>::quiet_NaN());
    adapted.b.Pack();
    forward->Linear(in.view(), adapted.view(), with.view());
    for (int64_t row = 0; row < 33; ++row) {
      for (int64_t col = 0; col < 65; ++col) REQUIRE(std::isnan(with.At(row, col)) == (col == 9));
    }
  }
}

TEST_CASE("Gradients through adapters agree with central differences", "[ops][adapter]") {
  const auto forward = testing::MakeForward(kF32, 2);
  const auto backward = testing::MakeBackward(kF32, 2);
  constexpr int64_t kRows = 11, kOut = 43, kIn = 37, kRank = 5;
  for (const bool hole : {false, true}) {
    Adapted adapted(kF32, kOut, kIn, kRank, false, hole);
    TestMatrix in = TestMatrix::Random(kF32, kRows, kIn, 1);
    const TestMatrix dout = TestMatrix::Random(kF32, kRows, kOut, 2);
    const TestMatrix out(kF32, kRows, kOut), din(kF32, kRows, kIn);
    const auto loss = [&] {
      adapted.a.Pack();
      adapted.b.Pack();
      forward->Linear(in.view(), adapted.view(), out.view());
      return WeightedSum(dout, out);
    };
    backward->LinearInput(dout.view(), adapted.view(), din.view());
    Sums sums(adapted, 0.5f);  // added to
    backward->AdapterWeights(dout.view(), in.view(), adapted.view(), sums.gradients);
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t j = i % 3; j < kIn; j += 3) RequireSlope(in, i, j, double{din.At(i, j)}, loss);
    }
    for (int part = 0; part < 3; ++part) {
      const LinearAdapter::Part rows = adapted.view().adapter.part[part];
      for (int64_t k = 0; k < kRank && rows.rows > 0; ++k) {
        for (int64_t j = k % 3; j < kIn; j += 3) {
          const float gradient = sums.a[part][static_cast<size_t>(k * kIn + j)] - 0.5f;
          RequireSlope(adapted.a.source, part * kRank + k, j, double{gradient}, loss);
        }
      }
      for (int64_t row = 0; row < rows.rows; ++row) {
        for (int64_t k = 0; k < kRank; ++k) {
          const float gradient = sums.b[part][static_cast<size_t>(row * kRank + k)] - 0.5f;
          RequireSlope(adapted.b.source, rows.row + row, k, double{gradient}, loss);
        }
      }
    }
  }
}

TEST_CASE("Gradients of adapters keep their bits when a batch is cut, and in every kernel set",
          "[ops][adapter]") {
  constexpr int64_t kRows = 77;
  const TestMatrix in = TestMatrix::Random(kBf16, kRows, 72, 1, 2.0f);
  const TestMatrix dout = TestMatrix::Random(kBf16, kRows, 101, 2);
  for (const char* numerics : {"seq", "amx32"}) {
    std::array<std::vector<float>, 3> a, b;
    for (const std::string& isa : testing::RunnableIsas(numerics)) {
      const testing::ForcedIsa forced(isa);
      const Adapted adapted(kBf16, 101, 72, 9, false, false);
      for (const int threads : {1, 3}) {
        const auto backward = testing::MakeBackward(kBf16, threads);
        for (const int64_t cut : {int64_t{0}, int64_t{1}, int64_t{32}, int64_t{45}}) {
          Sums sums(adapted);
          for (const auto& [first, last] : {std::pair(int64_t{0}, cut), {cut, kRows}}) {
            backward->AdapterWeights(dout.Rows(first, last - first), in.Rows(first, last - first),
                                     adapted.view(), sums.gradients);
          }
          if (a[0].empty()) {
            a = sums.a;
            b = sums.b;
          }
          INFO(isa << ", cut at " << cut << ", " << threads << " threads");
          REQUIRE(sums.a == a);
          REQUIRE(sums.b == b);
        }
      }
    }
  }
}

}  // namespace tandem
