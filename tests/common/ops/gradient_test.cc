// Gradients of the fp32 path against central differences of its forward ops, and of the bf16 path
// against the fp32 path.
#include <cmath>
#include <functional>

#include <catch2/catch.hpp>

#include "tests/common/ops/ops_fixture.h"

namespace tandem {
namespace {
using testing::kF32;
using testing::TestKv;
using testing::TestMatrix;
using testing::TestWeight;
using testing::WeightedSum;

// Compares `gradient` [rows, cols of x] with the slope of `loss` in every `step`-th element of x.
void CheckSlopes(TestMatrix& x,
                 const std::vector<float>& gradient,
                 const std::function<double()>& loss,
                 double margin = 2e-3,
                 int64_t step = 3) {
  constexpr float kDelta = 0x1p-6f;
  for (int64_t index = 0; index < x.rows() * x.cols(); index += step) {
    const int64_t i = index / x.cols(), j = index % x.cols();
    const float value = x.At(i, j);
    x.Set(i, j, value + kDelta);
    const double above = loss();
    x.Set(i, j, value - kDelta);
    const double below = loss();
    x.Set(i, j, value);
    const double slope = (above - below) / (2.0 * static_cast<double>(kDelta));
    REQUIRE(static_cast<double>(gradient[static_cast<size_t>(index)]) ==
            Approx(slope).epsilon(2e-3).margin(margin));
  }
}

std::vector<float> ToFloats(const TestMatrix& matrix) {
  std::vector<float> values;
  for (int64_t i = 0; i < matrix.rows(); ++i) {
    for (int64_t j = 0; j < matrix.cols(); ++j) values.push_back(matrix.At(i, j));
  }
  return values;
}

FloatMatrix MatrixOver(std::vector<float>& values, int64_t cols) {
  return {values.data(), static_cast<int64_t>(values.size()) / cols, cols, cols};
}

// The largest difference of two gradients over the largest value.
double RelativeDifference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, largest = 0;
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, static_cast<double>(std::abs(a[i] - b[i])));
    largest = std::max(largest, static_cast<double>(std::abs(b[i])));
  }
  return difference / largest;
}

}  // namespace

TEST_CASE("Gradients of linear layers agree with central differences", "[ops][gradient]") {
  const auto forward = testing::MakeForward(kF32, 2);
  const auto backward = testing::MakeBackward(kF32, 2);
  const int64_t m = 11, n = 21, k = 37;
  TestMatrix in = TestMatrix::Random(kF32, m, k, 1);
  const TestMatrix dout = TestMatrix::Random(kF32, m, n, 2);
  TestWeight weight(kF32, n, k, 3, 0.5f, true);
  const TestMatrix out(kF32, m, n), din(kF32, m, k);
  const auto loss = [&] {
    forward->Linear(in.view(), weight.view(), out.view());
    return WeightedSum(dout, out);
  };
  std::vector<float> dweight(static_cast<size_t>(n * k)), dbias(static_cast<size_t>(n));
  backward->LinearInput(dout.view(), weight.view(), din.view());
  backward->LinearWeights(dout.view(), in.view(), dweight.data(), dbias.data());
  CheckSlopes(in, ToFloats(din), loss);
  CheckSlopes(weight.bias, dbias, loss);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t c = 0; c < k; ++c) {
      double sum = 0;
      for (int64_t i = 0; i < m; ++i) {
        sum += static_cast<double>(dout.At(i, j)) * static_cast<double>(in.At(i, c));
      }
      REQUIRE(dweight[static_cast<size_t>(j * k + c)] == Approx(sum).margin(1e-5));
    }
  }
}

TEST_CASE("Gradients of RMS norms agree with central differences", "[ops][gradient]") {
  const auto forward = testing::MakeForward(kF32);
  const auto backward = testing::MakeBackward(kF32, 2);
  const int64_t m = 5, n = 70;
  TestMatrix in = TestMatrix::Random(kF32, m, n, 1), weight = TestMatrix::Random(kF32, 1, n, 2);
  const TestMatrix dout = TestMatrix::Random(kF32, m, n, 3), out(kF32, m, n), din(kF32, m, n);
  const auto loss = [&] {
    forward->RmsNorm(in.view(), weight.data(), 1e-5f, out.view());
    return WeightedSum(dout, out);
  };
  std::vector<float> dresidual(static_cast<size_t>(m * n)), dweight(static_cast<size_t>(n));
  backward->RmsNorm(in.view(), weight.data(), 1e-5f, dout.view(), MatrixOver(dresidual, n),
                    dweight.data());
  CheckSlopes(in, dresidual, loss);
  CheckSlopes(weight, dweight, loss);
  std::vector<float> again(static_cast<size_t>(n));
  backward->HeadRmsNorms(in.view(), {1, 0, n},
                         {.q_weight = weight.data(), .eps = 1e-5f, .dq_weight = again.data()},
                         dout.view(), din.view());
  REQUIRE(again == dweight);
  REQUIRE(ToFloats(din) == dresidual);
  // A second call adds.
  backward->RmsNorm(in.view(), weight.data(), 1e-5f, dout.view(), MatrixOver(dresidual, n),
                    dweight.data());
  for (size_t i = 0; i < dresidual.size(); ++i) {
    REQUIRE(dresidual[i] == Approx(2 * ToFloats(din)[i]).margin(1e-6));
  }
}

TEST_CASE("The gradient of SiluMul agrees with central differences", "[ops][gradient]") {
  const auto forward = testing::MakeForward(kF32);
  const auto backward = testing::MakeBackward(kF32);
  TestMatrix in = TestMatrix::Random(kF32, 4, 2 * 21, 1, 3.0f);
  const TestMatrix dout = TestMatrix::Random(kF32, 4, 21, 2), out(kF32, 4, 21), din(kF32, 4, 42);
  backward->SiluMul(in.view(), dout.view(), din.view());
  CheckSlopes(in, ToFloats(din), [&] {
    forward->SiluMul(in.view(), out.view());
    return WeightedSum(dout, out);
  });
}

TEST_CASE("Gradients of attention and RoPE agree with central differences", "[ops][gradient]") {
  const auto forward = testing::MakeForward(kF32);
  const auto backward = testing::MakeBackward(kF32, 2);
  for (const AttentionShape& shape : {AttentionShape{4, 2, 8}, {3, 1, 18}}) {
    const int64_t lengths[] = {69, 2, 7}, rows = 78;
    const RopeTable rope = testing::TestRope(shape.head_dim, 128);
    TestMatrix source = TestMatrix::Random(kF32, rows, shape.qkv_cols(), 1);
    const TestMatrix dout = TestMatrix::Random(kF32, rows, shape.q_cols(), 2);
    TestMatrix qkv = source;
    const TestMatrix out(kF32, rows, shape.q_cols()), dqkv(kF32, rows, shape.qkv_cols());
    TestKv kv(shape, kF32, 8, 1);
    std::vector<std::vector<int32_t>> blocks;
    std::vector<AttentionSpan> spans;
    for (int64_t first = 0; const int64_t length : lengths) {
      blocks.push_back(kv.Take(length));
      spans.push_back({first, length, 0, blocks.back().data()});
      first += length;
    }
    const auto loss = [&] {
      qkv = source;
      forward->RopeAndStore(qkv.view(), shape, rope, spans, kv.view());
      forward->Attention(qkv.view(), shape, spans, kv.view(), out.view());
      return WeightedSum(dout, out);
    };
    loss();
    backward->Attention(qkv.view(), shape, spans, out.view(), dout.view(), dqkv.view());
    backward->Rope(dqkv.view(), shape, rope, spans);
    CheckSlopes(source, ToFloats(dqkv), loss, 2e-3, 17);
  }
}

TEST_CASE("Gradients of spans that share a prefix agree with central differences",
          "[ops][gradient]") {
  const AttentionShape shape = {4, 2, 16};
  const int64_t prefix = 69, rows = prefix + 5 + 3 + 70;
  const auto forward = testing::MakeForward(kF32, 2);
  const RopeTable rope = testing::TestRope(shape.head_dim, 160);
  TestMatrix source = TestMatrix::Random(kF32, rows, shape.qkv_cols(), 1);
  const TestMatrix dout = TestMatrix::Random(kF32, rows, shape.q_cols(), 2);
  TestMatrix qkv = source;
  const TestMatrix out(kF32, rows, shape.q_cols()), dqkv(kF32, rows, shape.qkv_cols());
  TestKv kv(shape, kF32, 8, 1);
  // The first sequence has five rows of its own behind the prefix. Its followers get blocks of
  // their own, filled with the prefix by a pass of their own.
  std::vector<AttentionSpan> spans;
  std::vector<std::vector<int32_t>> blocks;
  for (const int64_t own : {5, 3, 70}) blocks.push_back(kv.Take(prefix + own));
  spans.push_back({0, prefix + 5, 0, blocks[0].data()});
  spans.push_back({prefix + 5, 3, prefix, blocks[1].data(), 0});
  spans.push_back({prefix + 8, 70, prefix, blocks[2].data(), 0});
  const auto loss = [&] {
    for (size_t i = 1; i < 3; ++i) {
      qkv = source;
      forward->RopeAndStore(qkv.view(), shape, rope, {{0, prefix, 0, blocks[i].data()}}, kv.view());
    }
    qkv = source;
    forward->RopeAndStore(qkv.view(), shape, rope, spans, kv.view());
    forward->Attention(qkv.view(), shape, spans, kv.view(), out.view());
    return WeightedSum(dout, out);
  };
  loss();
  const TestMatrix rotated = qkv;
  std::vector<std::vector<float>> gradients;
  for (const int threads : {1, 2}) {
    const auto backward = testing::MakeBackward(kF32, threads);
    backward->Attention(rotated.view(), shape, spans, out.view(), dout.view(), dqkv.view());
    backward->Rope(dqkv.view(), shape, rope, spans);
    gradients.push_back(ToFloats(dqkv));
  }
  REQUIRE(gradients[0] == gradients[1]);
  CheckSlopes(source, gradients[0], loss, 2e-3, 31);
}

TEST_CASE("Gradients of log-probs and entropies agree with central differences",
          "[ops][gradient]") {
  const auto forward = testing::MakeForward(kF32);
  const auto backward = testing::MakeBackward(kF32, 2);
  const int64_t m = 70, k = 6, vocab = 2100, limit = 2090;
  TestMatrix hidden = TestMatrix::Random(kF32, m, k, 1, 2.0f);
  const TestWeight head(kF32, vocab, k, 3, 1.0f);
  std::vector<int32_t> targets;
  std::vector<float> temperatures, log_probs(m);
  std::vector<RowStats> stats(m);
  for (int32_t i = 0; i < m; ++i) {
    targets.push_back(i * 29);
    temperatures.push_back(i % 3 == 0 ? 0.0f : 0.7f + 0.1f * static_cast<float>(i % 4));
  }
  const TestMatrix g = TestMatrix::Random(kF32, 1, m, 4), ge = TestMatrix::Random(kF32, 1, m, 5);
  const auto loss = [&] {
    forward->TokenLogProbs(hidden.view(), head.view(), limit, targets.data(), temperatures.data(),
                           log_probs.data(), stats.data());
    double sum = 0;
    for (int64_t i = 0; i < m; ++i) {
      const auto at = static_cast<size_t>(i);
      sum += static_cast<double>(g.At(0, i)) * static_cast<double>(log_probs[at]) +
             static_cast<double>(ge.At(0, i)) * static_cast<double>(stats[at].entropy);
    }
    return sum;
  };
  const TestMatrix dhidden(kF32, m, k);
  std::vector<float> dhead(static_cast<size_t>(vocab * k));
  const std::vector<float> g_values = ToFloats(g), ge_values = ToFloats(ge);
  loss();
  backward->TokenLogProbs(hidden.view(), head.view(), limit, targets.data(), temperatures.data(),
                          stats.data(), g_values.data(), ge_values.data(), dhidden.view(),
                          dhead.data());
  CheckSlopes(hidden, ToFloats(dhidden), loss, 4e-3, 7);
  // The gradient of the head by linearity: columns sum to those of the logits' gradient times
  // hidden, and ids beyond the limit get none.
  for (size_t i = static_cast<size_t>(limit * k); i < dhead.size(); ++i) REQUIRE(dhead[i] == 0.0f);
  double along = 0, from_hidden = 0;  // <dhead, head> = <dhidden, hidden>: both scale the logits
  for (int64_t i = 0; i < vocab; ++i) {
    for (int64_t j = 0; j < k; ++j) {
      along += static_cast<double>(dhead[static_cast<size_t>(i * k + j)]) *
               static_cast<double>(head.source.At(i, j));
    }
  }
  from_hidden = WeightedSum(hidden, dhidden);
  REQUIRE(along == Approx(from_hidden).epsilon(1e-4).margin(1e-4));
}

TEST_CASE("Gradients in bf16 stay close to those in fp32", "[ops][gradient]") {
  const DType bf16 = DType::kBFloat16;
  const AttentionShape shape = {6, 2, 16};
  const int64_t rows = 90;
  std::vector<std::vector<float>> attention, linear, logits;
  for (const DType dtype : {kF32, bf16}) {
    const auto forward = testing::MakeForward(dtype);
    const auto backward = testing::MakeBackward(dtype, 2);
    // Inputs that both dtypes hold exactly.
    TestMatrix qkv(dtype, rows, shape.qkv_cols()), dout(dtype, rows, shape.q_cols());
    const TestMatrix q_source = TestMatrix::Random(bf16, rows, shape.qkv_cols(), 1);
    const TestMatrix d_source = TestMatrix::Random(bf16, rows, shape.q_cols(), 2);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < qkv.cols(); ++j) qkv.Set(i, j, q_source.At(i, j));
      for (int64_t j = 0; j < dout.cols(); ++j) dout.Set(i, j, d_source.At(i, j));
    }
    TestKv kv(shape, dtype, 4, 1);
    const std::vector<int32_t> blocks = kv.Take(rows);
    const std::vector<AttentionSpan> spans = {{0, rows, 0, blocks.data()}};
    const RopeTable rope = testing::TestRope(shape.head_dim, rows);
    const TestMatrix out(dtype, rows, shape.q_cols()), dqkv(dtype, rows, shape.qkv_cols());
    forward->RopeAndStore(qkv.view(), shape, rope, spans, kv.view());
    forward->Attention(qkv.view(), shape, spans, kv.view(), out.view());
    backward->Attention(qkv.view(), shape, spans, out.view(), dout.view(), dqkv.view());
    backward->Rope(dqkv.view(), shape, rope, spans);
    attention.push_back(ToFloats(dqkv));
    std::vector<float> dweight(static_cast<size_t>(qkv.cols() * dout.cols()));
    backward->LinearWeights(dout.view(), qkv.view(), dweight.data(), nullptr);
    linear.push_back(dweight);
    TestWeight head(dtype, 1500, qkv.cols(), 3, 0.0625f);
    for (int64_t i = 0; i < 1500; ++i) {
      for (int64_t j = 0; j < qkv.cols(); ++j) {
        head.source.Set(i, j, static_cast<float>((i * 7 + j * 13) % 31 - 15) * 0x1p-6f);
      }
    }
    head.Pack();
    const std::vector<int32_t> targets(static_cast<size_t>(rows), 1234);
    const std::vector<float> ones(static_cast<size_t>(rows), 1.0f);
    const TestMatrix dhidden(dtype, rows, qkv.cols());
    std::vector<float> dhead(static_cast<size_t>(1500 * qkv.cols()));
    std::vector<float> log_probs(ones.size());
    std::vector<RowStats> stats(ones.size());
    testing::MakeForward(dtype)->TokenLogProbs(qkv.view(), head.view(), 1500, targets.data(),
                                               ones.data(), log_probs.data(), stats.data());
    backward->TokenLogProbs(qkv.view(), head.view(), 1500, targets.data(), ones.data(),
                            stats.data(), ones.data(), nullptr, dhidden.view(), dhead.data());
    logits.push_back(ToFloats(dhidden));
  }
  REQUIRE(RelativeDifference(attention[1], attention[0]) < 0.02);
  REQUIRE(RelativeDifference(linear[1], linear[0]) < 0.02);
  REQUIRE(RelativeDifference(logits[1], logits[0]) < 0.02);
}

TEST_CASE("Embed adds rows to the table in ascending order", "[ops][gradient]") {
  const auto backward = testing::MakeBackward(DType::kBFloat16, 2);
  const std::vector<int32_t> ids = {3, 0, 3, 2};
  std::vector<float> dx, table(static_cast<size_t>(4 * 70), 0.5f), expected = table;
  for (int i = 0; i < 4 * 70; ++i) dx.push_back(0.1f * static_cast<float>(i % 13));
  for (size_t i = 0; i < ids.size(); ++i) {
    for (size_t j = 0; j < 70; ++j)
      expected[static_cast<size_t>(ids[i]) * 70 + j] += dx[i * 70 + j];
  }
  backward->Embed(ids.data(), MatrixOver(dx, 70), table.data());
  REQUIRE(table == expected);
}

}  // namespace tandem
