// Dropout in front of adapters: which elements it takes, and products and gradients with it, bit
// for bit as documented in every kernel set.
#include "common/ops/adapter_dropout.h"

#include <cstring>
#include <numeric>
#include <set>

#include "common/ops/cpu/dropped_rows.h"
#include "tests/common/ops/adapted_weight.h"
#include "tests/common/ops/ops_fixture.h"

namespace tandem {
namespace {

using testing::Adapted;
using testing::Dot;
using testing::kBf16;
using testing::kF32;
using testing::RequireSlope;
using testing::Sums;
using testing::TestMatrix;
using testing::WeightedSum;

std::vector<uint64_t> Keys(int64_t rows) {
  std::vector<uint64_t> keys;
  for (int64_t row = 0; row < rows; ++row) {
    keys.push_back(DerivedKey(9, 8, static_cast<uint64_t>(row)));
  }
  return keys;
}

// A weight whose adapters drop; part i's module is 40 + i.
LinearWeight Dropping(const Adapted& adapted, const AdapterDropout& dropout) {
  LinearWeight weight = adapted.view();
  for (int i = 0; i < weight.adapter.parts; ++i) weight.adapter.part[i].module = 40 + i;
  weight.adapter.dropout = &dropout;
  return weight;
}

// `in` as a part takes it, not scaled.
TestMatrix Kept(const TestMatrix& in, const AdapterDropout& dropout, int part) {
  TestMatrix kept(in.dtype(), in.rows(), in.cols());
  for (int64_t i = 0; i < in.rows(); ++i) {
    for (int64_t j = 0; j < in.cols(); ++j) {
      const bool drops = DropoutDraw(dropout.rows[i], 40 + part, j) < dropout.below;
      kept.Set(i, j, drops ? 0.0f : in.At(i, j));
    }
  }
  return kept;
}

TestMatrix Transposed(const TestMatrix& matrix) {
  TestMatrix out(matrix.dtype(), matrix.cols(), matrix.rows());
  for (int64_t i = 0; i < matrix.rows(); ++i) {
    for (int64_t j = 0; j < matrix.cols(); ++j) out.Set(j, i, matrix.At(i, j));
  }
  return out;
}

// The documented sums in plain C.
struct Plain {
  Plain(const Adapted& adapted_weight, const AdapterDropout& drops, const TestMatrix& x, bool amx)
      : adapted(adapted_weight),
        adapter(adapted_weight.view().adapter),
        dropout(drops),
        in(x),
        tiles(amx),
        transposed(Transposed(adapted.weight.source)) {
    for (int part = 0; part < 3; ++part) kept.push_back(Kept(in, dropout, part));
  }

  float T(int64_t row, int part, int64_t r) const {
    return Dot(kept[static_cast<size_t>(part)], row, adapted.a.source, part * adapted.rank + r,
               tiles) *
           dropout.scale();
  }
  float Out(int64_t row, int64_t n) const {
    float sum = Dot(in, row, adapted.weight.source, n, tiles);
    if (const int part = adapted.PartOf(n); part >= 0) {
      float chain = 0;
      for (int64_t r = 0; r < adapted.rank; ++r) {
        chain = std::fma(T(row, part, r), adapted.b.source.At(n, r), chain);
      }
      sum += chain * adapter.scaling;
    }
    if (adapted.weight.has_bias) sum += adapted.weight.bias.At(0, n);
    return FromBf16(ToBf16(sum));
  }
  // dt of a part.
  float Dt(const TestMatrix& dout, int64_t row, int part, int64_t r) const {
    const LinearAdapter::Part& rows = adapter.part[part];
    float chain = 0;
    for (int64_t n = rows.row; n < rows.row + rows.rows; ++n) {
      chain = std::fma(dout.At(row, n), adapted.b.source.At(n, r), chain);
    }
    return chain * adapter.scaling;
  }
  float DIn(const TestMatrix& dout, int64_t row, int64_t col) const {
    float sum = Dot(dout, row, transposed, col, tiles);
    for (int part = 0; part < 3; ++part) {
      if (adapter.part[part].rows == 0) continue;
      if (DropoutDraw(dropout.rows[row], 40 + part, col) < dropout.below) continue;
      float chain = 0;
      for (int64_t r = 0; r < adapted.rank; ++r) {
        const float a = adapted.a.source.At(part * adapted.rank + r, col);
        chain = std::fma(Dt(dout, row, part, r), a, chain);
      }
      sum += chain * dropout.scale();
    }
    return FromBf16(ToBf16(sum));
  }
  float DA(const TestMatrix& dout, int part, int64_t r, int64_t col, float start) const {
    float sum = start;
    for (int64_t row = 0; row < in.rows(); ++row) {
      const float x = kept[static_cast<size_t>(part)].At(row, col);
      sum = std::fma(Dt(dout, row, part, r) * dropout.scale(), x, sum);
    }
    return sum;
  }
  float DB(const TestMatrix& dout, int part, int64_t n, int64_t r, float start) const {
    float sum = start;
    for (int64_t row = 0; row < in.rows(); ++row) {
      const float y = dout.At(row, adapter.part[part].row + n);
      sum = std::fma(y, T(row, part, r) * adapter.scaling, sum);
    }
    return sum;
  }

  const Adapted& adapted;
  const LinearAdapter adapter;
  const AdapterDropout& dropout;
  const TestMatrix& in;
  const bool tiles;
  const TestMatrix transposed;
  std::vector<TestMatrix> kept;
};

struct Shape {
  int64_t m, n, k, rank;
};

}  // namespace

TEST_CASE("dropout keeps and takes what the definition says, for elements of either size",
          "[ops][adapter]") {
  const std::vector<uint64_t> keys = Keys(1);
  for (const double share : {0.1, 0.5}) {
    const AdapterDropout dropout = MakeAdapterDropout(share, keys.data());
    for (const int64_t cols : {1, 7, 8, 127, 128, 129, 300}) {
      std::vector<uint16_t> narrow(static_cast<size_t>(cols)), narrow_out(narrow);
      std::vector<float> wide(narrow.size()), wide_out(narrow.size()), sums(narrow.size(), 5.0f);
      std::iota(narrow.begin(), narrow.end(), uint16_t{1});
      std::iota(wide.begin(), wide.end(), 1.0f);
      CopyKept(dropout, keys[0], 70, reinterpret_cast<const std::byte*>(narrow.data()), cols, 2,
               reinterpret_cast<std::byte*>(narrow_out.data()));
      CopyKept(dropout, keys[0], 70, reinterpret_cast<const std::byte*>(wide.data()), cols, 4,
               reinterpret_cast<std::byte*>(wide_out.data()));
      AddKept(dropout, keys[0], 70, wide.data(), cols, sums.data());
      for (size_t i = 0; i < narrow.size(); ++i) {
        const bool drops = DropoutDraw(keys[0], 70, static_cast<int64_t>(i)) < dropout.below;
        REQUIRE(narrow_out[i] == (drops ? 0 : narrow[i]));
        REQUIRE(wide_out[i] == (drops ? 0 : wide[i]));
        REQUIRE(sums[i] == 5.0f + (drops ? 0 : wide[i]));
      }
    }
  }
}

TEST_CASE("as many elements are dropped as asked for, and modules and rows have their own",
          "[ops][adapter]") {
  constexpr int64_t kRows = 200, kCols = 1000;
  const std::vector<uint64_t> keys = Keys(kRows);
  struct Want {
    double share;
    int64_t dropped;
  };
  for (const auto& [share, want] : {Want{0, 0}, {0.1, 20105}, {0.5, 100233}, {0.9, 180116}}) {
    const AdapterDropout dropout = MakeAdapterDropout(share, keys.data());
    int64_t dropped = 0;
    for (const uint64_t key : keys) {
      for (int64_t col = 0; col < kCols; ++col) {
        if (DropoutDraw(key, 3, col) < dropout.below) ++dropped;
      }
    }
    INFO(share);
    // Four standard deviations of that many independent draws.
    const double draws = kRows * kCols;
    REQUIRE(std::abs(static_cast<double>(dropped) - share * draws) <=
            4 * std::sqrt(draws * share * (1 - share)));
    REQUIRE(dropped == want);
  }
  std::set<std::vector<uint32_t>> rows;
  for (int64_t row = 0; row < 20; ++row) {
    for (int64_t module = 0; module < 20; ++module) {
      std::vector<uint32_t> draws;
      for (int64_t col = 0; col < 16; ++col) {
        draws.push_back(DropoutDraw(keys[static_cast<size_t>(row)], module, col));
      }
      rows.insert(draws);
    }
  }
  REQUIRE(rows.size() == 400);
}

TEST_CASE("a share is counted in 65,536ths, and what is kept makes up for it", "[ops][adapter]") {
  REQUIRE(MakeAdapterDropout(0, nullptr).below == 0);
  REQUIRE(MakeAdapterDropout(0, nullptr).scale() == 1.0f);
  REQUIRE(MakeAdapterDropout(0.25, nullptr).below == 16384);
  REQUIRE(MakeAdapterDropout(0.25, nullptr).scale() == 4.0f / 3.0f);
  REQUIRE(MakeAdapterDropout(0.1, nullptr).below == 6554);
  REQUIRE(MakeAdapterDropout(1 - 1e-9, nullptr).below == 65535);
  REQUIRE(MakeAdapterDropout(1 - 1e-9, nullptr).scale() == 65536.0f);
}

TEST_CASE("products and gradients with dropout are the documented sums, rounded once",
          "[ops][adapter]") {
  for (const bool tiles : {false, true}) {
    for (const std::string& isa : testing::RunnableIsas(tiles ? "amx32" : "seq")) {
      const testing::ForcedIsa forced(isa);
      const auto forward = testing::MakeForward(kBf16, 2);
      const auto backward = testing::MakeBackward(kBf16, 2);
      // Ranks that end inside of panels, at their end, behind; more rows than lie in scratch.
      for (const Shape& shape : {Shape{5, 16, 32, 1},
                                 {13, 50, 33, 3},
                                 {40, 96, 128, 16},
                                 {17, 61, 150, 11},
                                 {kDroppedRows + 21, 23, 19, 6}}) {
        const Adapted adapted(kBf16, shape.n, shape.k, shape.rank, /*bias=*/shape.m % 4 == 1,
                              /*hole=*/shape.m == 13);
        const TestMatrix in = TestMatrix::Random(kBf16, shape.m, shape.k, 7);
        const TestMatrix dout = TestMatrix::Random(kBf16, shape.m, shape.n, 8);
        const TestMatrix out(kBf16, shape.m, shape.n), din(kBf16, shape.m, shape.k);
        const std::vector<uint64_t> keys = Keys(shape.m);
        const AdapterDropout dropout = MakeAdapterDropout(0.3, keys.data());
        const LinearWeight weight = Dropping(adapted, dropout);
        const Plain plain(adapted, dropout, in, tiles);
        INFO(isa << " " << shape.m << " x " << shape.n << " x " << shape.k << ", rank "
                 << shape.rank);
        forward->Linear(in.view(), weight, out.view());
        backward->LinearInput(dout.view(), weight, din.view());
        Sums sums(adapted, 0.5f);
        backward->AdapterWeights(dout.view(), in.view(), weight, sums.gradients);
        bool same = true;
        for (int64_t i = 0; i < shape.m; ++i) {
          for (int64_t n = 0; n < shape.n; ++n) same = same && out.At(i, n) == plain.Out(i, n);
        }
        REQUIRE(same);
        for (int64_t i = 0; i < shape.m; ++i) {
          for (int64_t j = 0; j < shape.k; ++j)
            same = same && din.At(i, j) == plain.DIn(dout, i, j);
        }
        REQUIRE(same);
        for (int part = 0; part < 3; ++part) {
          const int64_t rows = weight.adapter.part[part].rows;
          for (int64_t i = 0; i < shape.rank && rows > 0; ++i) {
            for (int64_t j = 0; j < shape.k; ++j) {
              same = same && sums.a[part][static_cast<size_t>(i * shape.k + j)] ==
                                 plain.DA(dout, part, i, j, 0.5f);
            }
          }
          for (int64_t n = 0; n < rows; ++n) {
            for (int64_t i = 0; i < shape.rank; ++i) {
              same = same && sums.b[part][static_cast<size_t>(n * shape.rank + i)] ==
                                 plain.DB(dout, part, n, i, 0.5f);
            }
          }
        }
        REQUIRE(same);
      }
    }
  }
}

TEST_CASE("gradients with dropout agree with central differences", "[ops][adapter]") {
  const auto forward = testing::MakeForward(kF32, 2);
  const auto backward = testing::MakeBackward(kF32, 2);
  constexpr int64_t kRows = 9, kOut = 31, kIn = 29, kRank = 5;
  Adapted adapted(kF32, kOut, kIn, kRank, false, false);
  TestMatrix in = TestMatrix::Random(kF32, kRows, kIn, 1);
  const TestMatrix dout = TestMatrix::Random(kF32, kRows, kOut, 2);
  const TestMatrix out(kF32, kRows, kOut), din(kF32, kRows, kIn);
  const std::vector<uint64_t> keys = Keys(kRows);
  const AdapterDropout dropout = MakeAdapterDropout(0.4, keys.data());
  const LinearWeight weight = Dropping(adapted, dropout);
  const auto loss = [&] {
    adapted.a.Pack();
    adapted.b.Pack();
    forward->Linear(in.view(), weight, out.view());
    return WeightedSum(dout, out);
  };
  backward->LinearInput(dout.view(), weight, din.view());
  Sums sums(adapted);
  backward->AdapterWeights(dout.view(), in.view(), weight, sums.gradients);
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kIn; ++j) RequireSlope(in, i, j, double{din.At(i, j)}, loss);
  }
  for (int part = 0; part < 3; ++part) {
    const LinearAdapter::Part rows = weight.adapter.part[part];
    for (int64_t k = 0; k < kRank; ++k) {
      for (int64_t j = k % 3; j < kIn; j += 3) {
        const float gradient = sums.a[part][static_cast<size_t>(k * kIn + j)];
        RequireSlope(adapted.a.source, part * kRank + k, j, double{gradient}, loss);
      }
      for (int64_t row = 0; row < rows.rows; ++row) {
        const float gradient = sums.b[part][static_cast<size_t>(row * kRank + k)];
        RequireSlope(adapted.b.source, rows.row + row, k, double{gradient}, loss);
      }
    }
  }
}

TEST_CASE("with dropout a row depends on its key, not on its batch, and cutting one changes no sum",
          "[ops][adapter]") {
  constexpr int64_t kRows = 2 * kDroppedRows + 45, kOut = 61, kIn = 72;
  for (const std::string& isa : testing::RunnableIsas()) {
    const testing::ForcedIsa forced(isa);
    const Adapted adapted(kBf16, kOut, kIn, 9, false, false);
    const TestMatrix in = TestMatrix::Random(kBf16, kRows, kIn, 1, 2.0f);
    const TestMatrix dout = TestMatrix::Random(kBf16, kRows, kOut, 2);
    const std::vector<uint64_t> keys = Keys(kRows);
    const AdapterDropout dropout = MakeAdapterDropout(0.2, keys.data());
    const LinearWeight weight = Dropping(adapted, dropout);
    const TestMatrix full(kBf16, kRows, kOut), dfull(kBf16, kRows, kIn);
    Sums all(adapted);
    testing::MakeForward(kBf16, 1)->Linear(in.view(), weight, full.view());
    const auto one = testing::MakeBackward(kBf16, 1);
    one->LinearInput(dout.view(), weight, dfull.view());
    one->AdapterWeights(dout.view(), in.view(), weight, all.gradients);
    for (const int threads : {1, 3}) {
      const auto forward = testing::MakeForward(kBf16, threads);
      const auto backward = testing::MakeBackward(kBf16, threads);
      for (const int64_t cut : {int64_t{1}, int64_t{17}, kDroppedRows, kRows - 3}) {
        const TestMatrix out(kBf16, kRows, kOut), din(kBf16, kRows, kIn);
        Sums sums(adapted);
        for (const auto& [first, last] : {std::pair(int64_t{0}, cut), {cut, kRows}}) {
          const AdapterDropout part = MakeAdapterDropout(0.2, keys.data() + first);
          const LinearWeight cut_weight = Dropping(adapted, part);
          forward->Linear(in.Rows(first, last - first), cut_weight, out.Rows(first, last - first));
          backward->LinearInput(dout.Rows(first, last - first), cut_weight,
                                din.Rows(first, last - first));
          backward->AdapterWeights(dout.Rows(first, last - first), in.Rows(first, last - first),
                                   cut_weight, sums.gradients);
        }
        INFO(isa << ", cut at " << cut << ", " << threads << " threads");
        REQUIRE(out.SameBits(full));
        REQUIRE(din.SameBits(dfull));
        REQUIRE(sums.a == all.a);
        REQUIRE(sums.b == all.b);
      }
    }
  }
}

TEST_CASE("dropout of nothing has the bits of none, and it does not touch what has no adapter",
          "[ops][adapter]") {
  for (const std::string& isa : testing::RunnableIsas()) {
    const testing::ForcedIsa forced(isa);
    const auto forward = testing::MakeForward(kBf16, 2);
    const auto backward = testing::MakeBackward(kBf16, 2);
    const Adapted adapted(kBf16, 50, 40, 7, true, false);
    const TestMatrix in = TestMatrix::Random(kBf16, 33, 40, 1);
    const TestMatrix dout = TestMatrix::Random(kBf16, 33, 50, 2);
    const std::vector<uint64_t> keys = Keys(33);
    const AdapterDropout none = MakeAdapterDropout(0, keys.data());
    const AdapterDropout some = MakeAdapterDropout(0.5, keys.data());
    const TestMatrix with(kBf16, 33, 50), without(kBf16, 33, 50);
    forward->Linear(in.view(), Dropping(adapted, none), with.view());
    forward->Linear(in.view(), adapted.view(), without.view());
    INFO(isa);
    REQUIRE(with.SameBits(without));
    Sums dropped_sums(adapted), sums(adapted);
    backward->AdapterWeights(dout.view(), in.view(), Dropping(adapted, none),
                             dropped_sums.gradients);
    backward->AdapterWeights(dout.view(), in.view(), adapted.view(), sums.gradients);
    REQUIRE(dropped_sums.a == sums.a);
    REQUIRE(dropped_sums.b == sums.b);

    LinearWeight plain = adapted.weight.view();
    const TestMatrix din(kBf16, 33, 40), dplain(kBf16, 33, 40);
    forward->Linear(in.view(), plain, without.view());
    backward->LinearInput(dout.view(), plain, dplain.view());
    plain.adapter.dropout = &some;
    forward->Linear(in.view(), plain, with.view());
    backward->LinearInput(dout.view(), plain, din.view());
    REQUIRE(with.SameBits(without));
    REQUIRE(din.SameBits(dplain));
  }
}

}  // namespace tandem
