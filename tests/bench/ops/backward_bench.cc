// Gradients of linear and of the ops that take rows one by one.
#include <fmt/core.h>

#include "tests/bench/ops/benches.h"
#include "tests/bench/ops/shapes.h"
#include "tests/common/ops/ops_fixture.h"

namespace tandem::bench {
namespace {
using testing::TestMatrix;
using testing::TestWeight;

void BenchWeight(const WeightShape& shape, BackwardOps& ops, const Settings& settings) {
  const TestWeight weight(kBf16, shape.n, shape.k, 1, 0.1f);
  const TestMatrix in = TestMatrix::Random(kBf16, kTrainRows, shape.k, 2);
  const TestMatrix dout = TestMatrix::Random(kBf16, kTrainRows, shape.n, 3);
  const TestMatrix din(kBf16, kTrainRows, shape.k);
  std::vector<float> dweight(static_cast<size_t>(shape.n * shape.k));
  const double flops = 2.0 * static_cast<double>(kTrainRows * shape.n * shape.k);
  const auto compare = [&](const char* op, const auto& ours, auto counterparts) {
    Compare({fmt::format("op backward {} {}x{} {} rows threads {}", op, shape.n, shape.k,
                         kTrainRows, settings.threads),
             flops},
            ours,
            settings.counterparts ? counterparts(kTrainRows, shape.n, shape.k) : Counterparts());
  };
  compare(
      "dX", [&] { ops.LinearInput(dout.view(), weight.view(), din.view()); },
      LinearInputCounterparts);
  compare(
      "dW", [&] { ops.LinearWeights(dout.view(), in.view(), dweight.data(), nullptr); },
      LinearWeightsCounterparts);
}

void BenchRowGradients(BackwardOps& ops, const Settings& settings) {
  const int64_t rows = kTrainRows;
  const auto compare = [&](const char* op, int64_t cols, const auto& ours, auto counterparts) {
    Compare({fmt::format("op backward {} {}x{} threads {}", op, rows, cols, settings.threads)},
            ours, settings.counterparts ? counterparts(rows, cols) : Counterparts());
  };
  const TestMatrix x = TestMatrix::Random(kBf16, rows, kHidden, 2), dout = x, rounded = x;
  const TestMatrix weight = TestMatrix::Random(kBf16, 1, kHidden, 3);
  std::vector<float> dx(static_cast<size_t>(rows * kHidden)), dweight(kHidden);
  const FloatMatrix dresidual = {dx.data(), rows, kHidden, kHidden};
  compare(
      "rms_norm", kHidden,
      [&] { ops.RmsNorm(x.view(), weight.data(), kEps, dout.view(), dresidual, dweight.data()); },
      RmsNormBackwardCounterparts);
  compare(
      "rounding", kHidden, [&] { ops.Round(dresidual, rounded.view()); }, RoundCounterparts);
  const TestMatrix gate_up = TestMatrix::Random(kBf16, rows, 2 * kFfn, 4), dgate_up = gate_up;
  const TestMatrix dup = TestMatrix::Random(kBf16, rows, kFfn, 5);
  compare(
      "silu_mul", kFfn, [&] { ops.SiluMul(gate_up.view(), dup.view(), dgate_up.view()); },
      SiluMulBackwardCounterparts);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < rows; ++i) ids.push_back(static_cast<int32_t>(i * 7919 % kVocab));
  std::vector<float> dtable(kVocab * kHidden);
  compare(
      "embed", kHidden, [&] { ops.Embed(ids.data(), dresidual, dtable.data()); },
      [](int64_t m, int64_t cols) { return EmbedBackwardCounterparts(m, kVocab, cols); });
}

}  // namespace

void BenchBackward(const Settings& settings) {
  const auto ops = testing::MakeBackward(kBf16, settings.threads);
  for (const WeightShape& shape : kLayerWeights) BenchWeight(shape, *ops, settings);
  BenchRowGradients(*ops, settings);
}

}  // namespace tandem::bench
