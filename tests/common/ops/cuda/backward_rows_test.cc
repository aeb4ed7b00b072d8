#include <cmath>
#include <utility>

#include <catch2/catch.hpp>

#include "common/ops/cuda/rows/rows.h"
#include "tests/common/ops/cuda/kernel_fixture.h"
#include "tests/common/ops/ops_fixture.h"

namespace tandem {
namespace {
using testing::kBf16;
using testing::RandomFloats;
using testing::SameBits;
using testing::ScopedSeed;
using testing::TestMatrix;
using testing::View;

constexpr float kBackwardEps = 1e-6f;

// Calls the kernels with newly allocated scratch; `second` is the weight of the last `seconds`
// heads.
class NormBackward {
 public:
  NormBackward(const TestMatrix& weight,
               int64_t rows,
               int64_t heads = 1,
               const TestMatrix* second = nullptr,
               int64_t seconds = 0)
      : dweight(static_cast<size_t>(weight.cols())),
        dsecond(dweight.size()),
        norm_{.rows = rows,
              .heads = heads,
              .first_heads = heads - seconds,
              .cols = weight.cols(),
              .first = weight.data(),
              .second = second == nullptr ? nullptr : second->data(),
              .eps = kBackwardEps},
        inverse_(static_cast<size_t>(rows * heads)),
        partials_(static_cast<size_t>(NormPartials(norm_) * norm_.cols)) {}
  void Run(Matrix in, Matrix dout, FloatMatrix dresidual, Matrix din) {
    LaunchRmsNormBackward(nullptr, norm_, {inverse_.data(), partials_.data()}, in, dout,
                          {dresidual, din, dweight.data(), dsecond.data()});
  }
  std::vector<float> dweight, dsecond;

 private:
  NormRows norm_;
  std::vector<float> inverse_, partials_;
};
}  // namespace

TEST_CASE("Rounding and the gradient of SiLU have the CPU's bits", "[cuda][backward]") {
  const auto cpu = testing::MakeBackward(kBf16);
  for (const int64_t cols : {8, 1048}) {
    std::vector<float> values = RandomFloats(3, cols, 1);
    TestMatrix here(kBf16, 3, cols), there(kBf16, 3, cols);
    LaunchRound(nullptr, View(values, 3), here.view());
    cpu->Round(View(values, 3), there.view());
    REQUIRE(here.SameBits(there));

    const TestMatrix gate_up = TestMatrix::Random(kBf16, 3, 2 * cols, 2, 8.0f);
    const TestMatrix dout = TestMatrix::Random(kBf16, 3, cols, 3);
    TestMatrix d_here(kBf16, 3, 2 * cols), d_there(kBf16, 3, 2 * cols);
    LaunchSiluMulBackward(nullptr, gate_up.view(), dout.view(), d_here.view());
    cpu->SiluMul(gate_up.view(), dout.view(), d_there.view());
    REQUIRE(d_here.SameBits(d_there));
  }
}

TEST_CASE("The gradient of a norm agrees with the CPU's", "[cuda][backward]") {
  const auto cpu = testing::MakeBackward(kBf16);
  // The first has more rows than one partial sum takes.
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{600, 64}, {20, 1096}, {7, 4104}}) {
    const TestMatrix in = TestMatrix::Random(kBf16, rows, cols, 1, 2.0f);
    const TestMatrix weight = TestMatrix::Random(kBf16, 1, cols, 2);
    const TestMatrix dout = TestMatrix::Random(kBf16, rows, cols, 3);
    std::vector<float> here = RandomFloats(rows, cols, 4), there = here;
    std::vector<float> dweight(static_cast<size_t>(cols));
    NormBackward backward(weight, rows);
    backward.Run(in.view(), dout.view(), View(here, rows), {});
    cpu->RmsNorm(in.view(), weight.data(), kBackwardEps, dout.view(), View(there, rows),
                 dweight.data());
    float worst = 0, worst_weight = 0, largest = 0;
    for (size_t i = 0; i < here.size(); ++i) worst = std::max(worst, std::fabs(here[i] - there[i]));
    for (size_t i = 0; i < dweight.size(); ++i) {
      worst_weight = std::max(worst_weight, std::fabs(backward.dweight[i] - dweight[i]));
      largest = std::max(largest, std::fabs(dweight[i]));
    }
    REQUIRE(worst < 2e-6f);
    // A factor of dweight is rounded to bf16: where the inverse differs in its last bit it may go
    // the other way.
    REQUIRE(worst_weight < 2e-3f * largest);
  }
}

TEST_CASE("Gradients of all head norms at once may replace what they came from",
          "[cuda][backward]") {
  // More rows of a weight than one partial sum takes, and of the other weight fewer.
  constexpr int64_t kRows = 130, kHeads = 3, kDim = 128;
  const AttentionShape shape = {2, 1, kDim};
  const auto cpu = testing::MakeBackward(kBf16);
  const TestMatrix in = TestMatrix::Random(kBf16, kRows, kHeads * kDim, 1, 2.0f);
  const TestMatrix q = TestMatrix::Random(kBf16, 1, kDim, 2);
  const TestMatrix k = TestMatrix::Random(kBf16, 1, kDim, 4);
  const TestMatrix dout = TestMatrix::Random(kBf16, kRows, kHeads * kDim, 3);
  TestMatrix apart(kBf16, kRows, kHeads * kDim), there = dout;
  NormBackward reference(q, kRows, kHeads, &k, 1);
  reference.Run(in.view(), dout.view(), {}, apart.view());
  for (const uint64_t seed : testing::TwoSeeds()) {
    const ScopedSeed scoped(seed);
    TestMatrix in_place = dout;
    NormBackward backward(q, kRows, kHeads, &k, 1);
    backward.Run(in.view(), in_place.view(), {}, in_place.view());
    REQUIRE(in_place.SameBits(apart));
    REQUIRE(SameBits(backward.dweight, reference.dweight));
    REQUIRE(SameBits(backward.dsecond, reference.dsecond));
  }
  std::vector<float> dq(kDim), dk(kDim);
  cpu->HeadRmsNorms(in.view(), shape, {q.data(), k.data(), kBackwardEps, dq.data(), dk.data()},
                    there.view(), there.view());
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t col = 0; col < kHeads * kDim; ++col) {
      REQUIRE(apart.At(row, col) == Approx(there.At(row, col)).epsilon(0x1p-7).margin(1e-5));
    }
  }
  for (size_t i = 0; i < dq.size(); ++i) {
    REQUIRE(reference.dweight[i] == Approx(dq[i]).epsilon(1e-4).margin(0.1));
    REQUIRE(reference.dsecond[i] == Approx(dk[i]).epsilon(1e-4).margin(0.1));
  }
}

TEST_CASE("A row's gradient does not depend on the rows beside it", "[cuda][backward]") {
  constexpr int64_t kRows = 19;
  for (const int64_t cols : {128, 1024}) {
    const TestMatrix in = TestMatrix::Random(kBf16, kRows, cols, 1, 2.0f);
    const TestMatrix weight = TestMatrix::Random(kBf16, 1, cols, 2);
    const TestMatrix dout = TestMatrix::Random(kBf16, kRows, cols, 3);
    TestMatrix full(kBf16, kRows, cols);
    NormBackward(weight, kRows).Run(in.view(), dout.view(), {}, full.view());
    for (const int64_t m : {1, 3, 8, 17}) {
      const ScopedSeed seed(testing::OtherSeed());
      TestMatrix part(kBf16, m, cols);
      NormBackward(weight, m).Run(in.Rows(2, m), dout.Rows(2, m), {}, part.view());
      for (int64_t row = 0; row < m; ++row) REQUIRE(part.SameRow(row, full, row + 2));
    }
  }
}

TEST_CASE("Rows of one id are added in ascending order", "[cuda][backward]") {
  constexpr int64_t kRows = 60, kCols = 136, kIds = 11;
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < kRows; ++i) ids.push_back(i < 20 ? 7 : i * 5 % 9);
  const RowRuns grouped = GroupRows(ids.data(), kRows);
  for (size_t i = 0; i < grouped.runs.size(); ++i) {
    const RowRun& run = grouped.runs[i];
    REQUIRE((i == 0 || grouped.runs[i - 1].id < run.id));
    REQUIRE(run.first == (i == 0 ? 0 : grouped.runs[i - 1].last));
    for (auto at = static_cast<size_t>(run.first); at < static_cast<size_t>(run.last); ++at) {
      REQUIRE(ids[static_cast<size_t>(grouped.order[at])] == run.id);
      REQUIRE((at == static_cast<size_t>(run.first) || grouped.order[at - 1] < grouped.order[at]));
    }
  }
  REQUIRE(grouped.runs.back().last == kRows);

  std::vector<float> x = RandomFloats(kRows, kCols, 1);
  const std::vector<float> start = RandomFloats(kIds, kCols, 2);
  std::vector<float> expected = start;
  for (size_t row = 0; row < kRows; ++row) {
    for (size_t col = 0; col < kCols; ++col) {
      expected[static_cast<size_t>(ids[row]) * kCols + col] += x[row * kCols + col];
    }
  }
  for (const uint64_t seed : testing::TwoSeeds()) {
    const ScopedSeed scoped(seed);
    std::vector<float> sums = start;
    LaunchAddRowRuns(nullptr, grouped.runs.data(), static_cast<int64_t>(grouped.runs.size()),
                     grouped.order.data(), View(x, kRows), sums.data(), kCols);
    REQUIRE(SameBits(sums, expected));
  }
}

}  // namespace tandem
