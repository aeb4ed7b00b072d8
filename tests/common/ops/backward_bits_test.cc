// The order of sums in the backward ops: documented, and the same for any number of threads.
#include <cmath>

#include <catch2/catch.hpp>

#include "tests/common/ops/ops_fixture.h"

namespace tandem {
namespace {
using testing::kBf16;
using testing::TestMatrix;
using testing::TestWeight;

// The second row of a pair, then the first, as vdpbf16ps adds them.
float Chain(
    const TestMatrix& dout, int64_t n, const TestMatrix& in, int64_t k, int64_t rows, float sum) {
  for (int64_t i = 0; i < rows; i += 2) {
    if (i + 1 < rows) sum = std::fma(dout.At(i + 1, n), in.At(i + 1, k), sum);
    sum = std::fma(dout.At(i, n), in.At(i, k), sum);
  }
  return sum;
}

// Everything TokenLogProbs' backward writes.
std::vector<float> LogitsGradients(DType dtype, int threads) {
  const int64_t rows = 1100, k = 24, vocab = 1500;
  const TestMatrix hidden = TestMatrix::Random(dtype, rows, k, 1);
  const TestWeight head(dtype, vocab, k, 2, 0.3f);
  std::vector<int32_t> targets(static_cast<size_t>(rows), 17);
  const std::vector<float> ones(static_cast<size_t>(rows), 1.0f);
  const TestMatrix dhidden(dtype, rows, k);
  std::vector<float> gradients(static_cast<size_t>(vocab * k), 0.25f);
  std::vector<float> log_probs(static_cast<size_t>(rows));
  std::vector<RowStats> stats(static_cast<size_t>(rows));
  testing::MakeForward(dtype, threads)
      ->TokenLogProbs(hidden.view(), head.view(), vocab, targets.data(), ones.data(),
                      log_probs.data(), stats.data());
  testing::MakeBackward(dtype, threads)
      ->TokenLogProbs(hidden.view(), head.view(), vocab, targets.data(), ones.data(), stats.data(),
                      ones.data(), ones.data(), dhidden.view(), gradients.data());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < k; ++j) gradients.push_back(dhidden.At(i, j));
  }
  return gradients;
}
}  // namespace

TEST_CASE("Weight gradients of class seq are one chain over the rows", "[ops][backward]") {
  const testing::ForcedIsa forced("avx2");
  for (const int64_t rows : {1, 2, 33, 700}) {
    const int64_t n = 45, k = 75;
    const TestMatrix dout = TestMatrix::Random(kBf16, rows, n, 1);
    const TestMatrix in = TestMatrix::Random(kBf16, rows, k, 2);
    std::vector<float> start, bias_start(static_cast<size_t>(n), 1.5f);
    for (int64_t i = 0; i < n * k; ++i) start.push_back(0.01f * static_cast<float>(i % 7));
    for (const int threads : {1, 2}) {
      const auto ops = testing::MakeBackward(kBf16, threads);
      std::vector<float> dweight = start, dbias = bias_start;
      ops->LinearWeights(dout.view(), in.view(), dweight.data(), dbias.data());
      for (int64_t j = 0; j < n; ++j) {
        float column = 1.5f;
        for (int64_t i = 0; i < rows; ++i) column += dout.At(i, j);
        REQUIRE(dbias[static_cast<size_t>(j)] == column);
        for (int64_t c = 0; c < k; ++c) {
          const auto at = static_cast<size_t>(j * k + c);
          REQUIRE(dweight[at] == Chain(dout, j, in, c, rows, start[at]));
        }
      }
      // Micro-batches of an even number of rows add up to the same bits.
      std::vector<float> pieces = start;
      const int64_t cut = rows / 4 * 2;
      ops->LinearWeights(dout.Rows(0, cut), in.Rows(0, cut), pieces.data(), nullptr);
      ops->LinearWeights(dout.Rows(cut, rows - cut), in.Rows(cut, rows - cut), pieces.data(),
                         nullptr);
      REQUIRE(pieces == dweight);
    }
  }
}

TEST_CASE("LinearInput of class seq is one chain over the outputs", "[ops][backward]") {
  const testing::ForcedIsa forced("avx2");
  const int64_t m = 19, n = 45, k = 75;
  const TestMatrix dout = TestMatrix::Random(kBf16, m, n, 1);
  const TestWeight weight(kBf16, n, k, 2, 0.5f);
  const TestMatrix din(kBf16, m, k);
  testing::MakeBackward(kBf16, 2)->LinearInput(dout.view(), weight.view(), din.view());
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t c = 0; c < k; ++c) {
      float sum = 0;
      for (int64_t j = 0; j < n; j += 2) {
        if (j + 1 < n) sum = std::fma(dout.At(i, j + 1), weight.source.At(j + 1, c), sum);
        sum = std::fma(dout.At(i, j), weight.source.At(j, c), sum);
      }
      REQUIRE(din.At(i, c) == FromBf16(ToBf16(sum)));
    }
  }
}

TEST_CASE("Gradients of log-probs do not depend on threads", "[ops][backward]") {
  for (const DType dtype : {kBf16, DType::kFloat32}) {
    REQUIRE(LogitsGradients(dtype, 1) == LogitsGradients(dtype, 3));
  }
}

}  // namespace tandem
