// Linear's gradients and the LM head at the shapes of SmolLM2-135M.
#include <fmt/core.h>

#include "tests/bench/ops/benches.h"
#include "tests/bench/ops/stopwatch.h"
#include "tests/common/ops/ops_fixture.h"

namespace tandem::bench {
namespace {
using testing::TestMatrix;
using testing::TestWeight;
constexpr DType kBf16 = DType::kBFloat16;

struct Shape {
  int64_t n, k;
};
constexpr Shape kShapes[] = {{576, 576}, {960, 576}, {3072, 576}, {576, 1536}};
}  // namespace

void BenchBackward() {
  for (const Shape shape : kShapes) {
    const int64_t rows = 2048;
    const TestWeight weight(kBf16, shape.n, shape.k, 1, 0.1f);
    const TestMatrix in = TestMatrix::Random(kBf16, rows, shape.k, 2);
    const TestMatrix dout = TestMatrix::Random(kBf16, rows, shape.n, 3), din(kBf16, rows, shape.k);
    std::vector<float> dweight(static_cast<size_t>(shape.n * shape.k));
    for (const int threads : {1, 2}) {
      const auto ops = testing::MakeBackward(kBf16, threads);
      const double flops = 2e-9 * static_cast<double>(rows * shape.n * shape.k);
      const double input =
          BestSeconds([&] { ops->LinearInput(dout.view(), weight.view(), din.view()); });
      const double weights =
          BestSeconds([&] { ops->LinearWeights(dout.view(), in.view(), dweight.data(), nullptr); });
      fmt::print("backward {}x{} threads {} {} rows: dX {:.0f} dW {:.0f} GFLOP/s\n", shape.n,
                 shape.k, threads, rows, flops / input, flops / weights);
    }
  }
}

void BenchLogits() {
  const TestWeight head(kBf16, 49152, 576, 1, 0.05f);
  const auto ops = testing::MakeForward(kBf16, 2);
  const auto backward = testing::MakeBackward(kBf16, 2);
  for (const int64_t m : {1, 8, 64, 512}) {
    const TestMatrix hidden = TestMatrix::Random(kBf16, m, 576, 2), dhidden(kBf16, m, 576);
    const std::vector<int32_t> targets(static_cast<size_t>(m), 5);
    std::vector<float> ones(static_cast<size_t>(m), 1.0f), log_probs = ones, dhead(49152 * 576);
    std::vector<RowStats> stats(static_cast<size_t>(m));
    const std::vector<SampleRow> rows(static_cast<size_t>(m));
    std::vector<SampledToken> tokens(static_cast<size_t>(m));
    const double score = BestSeconds([&] {
      ops->TokenLogProbs(hidden.view(), head.view(), 49152, targets.data(), ones.data(),
                         log_probs.data(), stats.data());
    });
    const double sample =
        BestSeconds([&] { ops->Sample(hidden.view(), head.view(), 49152, rows, tokens.data()); });
    const double back = BestSeconds([&] {
      backward->TokenLogProbs(hidden.view(), head.view(), 49152, targets.data(), ones.data(),
                              stats.data(), ones.data(), nullptr, dhidden.view(), dhead.data());
    });
    fmt::print("head, {} rows: log-probs {:.2f} ms, sample {:.2f} ms, backward {:.1f} ms\n", m,
               score * 1e3, sample * 1e3, back * 1e3);
  }
}

}  // namespace tandem::bench
