// The contract of backward_ops.h for every op and kernel set: a row's gradient does not depend on
// the number of rows, its place among them, its mates or threads (attention: a sequence's); sums
// over rows do not depend on threads.
#include <algorithm>
#include <numeric>

#include <catch2/catch.hpp>

#include "tests/common/ops/ops_fixture.h"

namespace tandem {
namespace {
using testing::Gather;
using testing::kBf16;
using testing::TestKv;
using testing::TestMatrix;
using testing::TestWeight;

constexpr AttentionShape kBackwardShape = {6, 2, 24};
constexpr int64_t kBackwardDim = 72, kWide = 101, kBackwardVocab = 1200, kBackwardLimit = 1150;
constexpr int64_t kBackwardLengths[] = {1, 2, 15, 16, 17, 33, 64, 65, 127, 150, 190, 344};
constexpr int64_t kBackwardRows = 1024;

FloatMatrix FloatsOf(const TestMatrix& matrix) {
  return {static_cast<float*>(matrix.view().data), matrix.rows(), matrix.cols(), matrix.cols()};
}

// One batch of kRows rows, of which others are parts: what every op gets, row by row.
struct BackwardInputs {
  TestMatrix in = TestMatrix::Random(kBf16, kBackwardRows, kBackwardDim, 1, 2.0f);
  TestMatrix dout = TestMatrix::Random(kBf16, kBackwardRows, kBackwardDim, 2);
  TestMatrix dwide = TestMatrix::Random(kBf16, kBackwardRows, kWide, 3);
  TestMatrix dhalf = TestMatrix::Random(kBf16, kBackwardRows, kBackwardDim / 2, 12);
  TestMatrix residual = TestMatrix::Random(DType::kFloat32, kBackwardRows, kBackwardDim, 4);
  TestMatrix norm = TestMatrix::Random(kBf16, 1, kBackwardDim, 5);
  TestMatrix grad_log_probs = TestMatrix::Random(DType::kFloat32, kBackwardRows, 1, 6);
  TestMatrix grad_entropies = TestMatrix::Random(DType::kFloat32, kBackwardRows, 1, 7);
  TestWeight weight = TestWeight(kBf16, kWide, kBackwardDim, 8, 0.3f);
  TestWeight head = TestWeight(kBf16, kBackwardVocab, kBackwardDim, 9, 0.5f);
  TestMatrix qkv = TestMatrix::Random(kBf16, kBackwardRows, kBackwardShape.qkv_cols(), 10);
  TestMatrix dattention = TestMatrix::Random(kBf16, kBackwardRows, kBackwardShape.q_cols(), 11);
  RopeTable rope = testing::TestRope(kBackwardShape.head_dim, 512);
  // What the forward made of them.
  TestMatrix attention = TestMatrix(kBf16, kBackwardRows, kBackwardShape.q_cols());
  std::vector<RowStats> stats = std::vector<RowStats>(kBackwardRows);
};

int32_t TargetOf(int64_t row) { return static_cast<int32_t>(row * 89 % kBackwardLimit); }
float TemperatureOf(int64_t row) { return row % 5 == 0 ? 0.0f : 0.7f; }

// The sequences of kLengths, one after another.
std::vector<AttentionSpan> AllSpans() {
  std::vector<AttentionSpan> spans;
  for (int64_t first = 0; const int64_t length : kBackwardLengths) {
    spans.push_back({.first_row = first, .rows = length});
    first += length;
  }
  return spans;
}

// Rotates `inputs.qkv` in place; attention and statistics of all rows.
void RunSweptForward(BackwardInputs& inputs) {
  const auto ops = testing::MakeForward(kBf16);
  TestKv kv(kBackwardShape, kBf16, 32, 1);
  std::vector<std::vector<int32_t>> blocks;
  std::vector<AttentionSpan> spans = AllSpans();
  for (AttentionSpan& span : spans) blocks.push_back(kv.Take(span.rows));
  for (size_t i = 0; i < spans.size(); ++i) spans[i].blocks = blocks[i].data();
  ops->RopeAndStore(inputs.qkv.view(), kBackwardShape, inputs.rope, spans, kv.view());
  ops->Attention(inputs.qkv.view(), kBackwardShape, spans, kv.view(), inputs.attention.view());
  std::vector<int32_t> targets;
  std::vector<float> temperatures, log_probs(kBackwardRows);
  for (int64_t row = 0; row < kBackwardRows; ++row) {
    targets.push_back(TargetOf(row));
    temperatures.push_back(TemperatureOf(row));
  }
  ops->TokenLogProbs(inputs.in.view(), inputs.head.view(), kBackwardLimit, targets.data(),
                     temperatures.data(), log_probs.data(), inputs.stats.data());
}

struct Gradients {
  std::vector<std::pair<std::string, TestMatrix>> rows;          // of rows
  std::vector<std::pair<std::string, std::vector<float>>> sums;  // over rows
};

// Adds up from something that is not zero.
std::vector<float> Start(int64_t elements) {
  std::vector<float> start;
  for (int64_t i = 0; i < elements; ++i) start.push_back(0.01f * static_cast<float>(i % 7));
  return start;
}

void RunHeadBackward(BackwardOps& ops,
                     const BackwardInputs& inputs,
                     const std::vector<int64_t>& rows,
                     Gradients& gradients) {
  const TestMatrix hidden = Gather(inputs.in, rows), dhidden(kBf16, hidden.rows(), kBackwardDim);
  const TestMatrix log_probs = Gather(inputs.grad_log_probs, rows);
  const TestMatrix entropies = Gather(inputs.grad_entropies, rows);
  std::vector<int32_t> targets;
  std::vector<float> temperatures, dhead = Start(kBackwardVocab * kBackwardDim);
  std::vector<RowStats> stats;
  for (const int64_t row : rows) {
    targets.push_back(TargetOf(row));
    temperatures.push_back(TemperatureOf(row));
    stats.push_back(inputs.stats[static_cast<size_t>(row)]);
  }
  ops.TokenLogProbs(hidden.view(), inputs.head.view(), kBackwardLimit, targets.data(),
                    temperatures.data(), stats.data(), FloatsOf(log_probs).data,
                    FloatsOf(entropies).data, dhidden.view(), dhead.data());
  gradients.rows.emplace_back("log-probs hidden", dhidden);
  gradients.sums.emplace_back("log-probs head", dhead);
}

// Every op whose rows stand alone, on a batch of these rows.
Gradients RunRows(BackwardOps& ops,
                  const BackwardInputs& inputs,
                  const std::vector<int64_t>& rows) {
  const auto count = std::ssize(rows);
  const TestMatrix in = Gather(inputs.in, rows), dout = Gather(inputs.dout, rows);
  const TestMatrix dwide = Gather(inputs.dwide, rows), residual = Gather(inputs.residual, rows);
  const TestMatrix rounded(kBf16, count, kBackwardDim), dlinear(kBf16, count, kBackwardDim);
  const TestMatrix dhead_norm(kBf16, count, kBackwardDim), dsilu(kBf16, count, kBackwardDim);
  const TestMatrix dhalf = Gather(inputs.dhalf, rows);
  std::vector<float> dweight = Start(kWide * kBackwardDim), dbias = Start(kWide),
                     dnorm = Start(kBackwardDim), dhead = Start(kBackwardDim),
                     dtable = Start(50 * kBackwardDim);
  std::vector<int32_t> ids;
  for (const int64_t row : rows) ids.push_back(static_cast<int32_t>(row * 7 % 50));
  ops.Round(FloatsOf(residual), rounded.view());
  ops.Embed(ids.data(), FloatsOf(residual), dtable.data());
  ops.LinearInput(dwide.view(), inputs.weight.view(), dlinear.view());
  ops.LinearWeights(dwide.view(), in.view(), dweight.data(), dbias.data());
  ops.RmsNorm(in.view(), inputs.norm.data(), 1e-5f, dout.view(), FloatsOf(residual), dnorm.data());
  ops.HeadRmsNorms(in.view(), {1, 0, kBackwardDim},
                   {.q_weight = inputs.norm.data(), .eps = 1e-5f, .dq_weight = dhead.data()},
                   dout.view(), dhead_norm.view());
  ops.SiluMul(in.view(), dhalf.view(), dsilu.view());
  Gradients gradients;
  gradients.rows = {{"round", rounded},
                    {"linear input", dlinear},
                    {"norm residual", residual},
                    {"head norm", dhead_norm},
                    {"silu", dsilu}};
  gradients.sums = {{"linear weight", dweight},
                    {"linear bias", dbias},
                    {"norm weight", dnorm},
                    {"head norm weight", dhead},
                    {"embedding", dtable}};
  RunHeadBackward(ops, inputs, rows, gradients);
  return gradients;
}

// The gradient of q, k and v before rotation, of these sequences of AllSpans in this order, and the
// rows they are.
TestMatrix RunAttention(BackwardOps& ops,
                        const BackwardInputs& inputs,
                        const std::vector<size_t>& sequences,
                        std::vector<int64_t>* rows) {
  std::vector<AttentionSpan> spans;
  rows->clear();
  for (const size_t sequence : sequences) {
    const AttentionSpan whole = AllSpans()[sequence];
    spans.push_back({.first_row = std::ssize(*rows), .rows = whole.rows});
    for (int64_t i = 0; i < whole.rows; ++i) rows->push_back(whole.first_row + i);
  }
  const TestMatrix qkv = Gather(inputs.qkv, *rows), out = Gather(inputs.attention, *rows);
  const TestMatrix dout = Gather(inputs.dattention, *rows);
  TestMatrix dqkv(kBf16, qkv.rows(), qkv.cols());
  ops.Attention(qkv.view(), kBackwardShape, spans, out.view(), dout.view(), dqkv.view());
  ops.Rope(dqkv.view(), kBackwardShape, inputs.rope, spans);
  return dqkv;
}

void RequireSameGradientRows(const std::string& what,
                             const TestMatrix& part,
                             const TestMatrix& full,
                             const std::vector<int64_t>& rows) {
  INFO(what);
  bool same = true;
  for (int64_t i = 0; i < part.rows(); ++i) {
    same = same && part.SameRow(i, full, rows[static_cast<size_t>(i)]);
  }
  REQUIRE(same);
}

std::vector<int64_t> Ascending(int64_t count) {
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

void SweepBackwardRows(const BackwardInputs& inputs) {
  const Gradients full = RunRows(*testing::MakeBackward(kBf16), inputs, Ascending(kBackwardRows));
  std::mt19937 random(11);
  for (const int64_t m : {1, 2, 3, 15, 16, 17, 31, 33, 63, 64, 65, 127, 256, 511, 1024}) {
    INFO(m << " rows");
    std::vector<int64_t> rows = Ascending(kBackwardRows);
    std::shuffle(rows.begin(), rows.end(), random);
    rows.resize(static_cast<size_t>(m));
    const Gradients one = RunRows(*testing::MakeBackward(kBf16), inputs, rows);
    const Gradients two = RunRows(*testing::MakeBackward(kBf16, 2), inputs, rows);
    for (size_t i = 0; i < full.rows.size(); ++i) {
      RequireSameGradientRows(full.rows[i].first, one.rows[i].second, full.rows[i].second, rows);
      RequireSameGradientRows(full.rows[i].first, two.rows[i].second, full.rows[i].second, rows);
    }
    for (size_t i = 0; i < one.sums.size(); ++i) {
      INFO(one.sums[i].first);
      REQUIRE(one.sums[i].second == two.sums[i].second);
    }
  }
}

void SweepAttention(const BackwardInputs& inputs) {
  std::vector<size_t> sequences(std::size(kBackwardLengths));
  std::iota(sequences.begin(), sequences.end(), 0);
  std::vector<int64_t> rows;
  const TestMatrix full = RunAttention(*testing::MakeBackward(kBf16), inputs, sequences, &rows);
  REQUIRE(std::ssize(rows) == kBackwardRows);
  std::mt19937 random(12);
  for (const int threads : {1, 2}) {
    const auto ops = testing::MakeBackward(kBf16, threads);
    for (size_t count = 1; count <= sequences.size(); ++count) {
      std::shuffle(sequences.begin(), sequences.end(), random);
      const std::vector<size_t> some(sequences.begin(),
                                     sequences.begin() + static_cast<std::ptrdiff_t>(count));
      const TestMatrix part = RunAttention(*ops, inputs, some, &rows);
      RequireSameGradientRows("attention", part, full, rows);
    }
  }
}

}  // namespace

TEST_CASE("No row's gradient depends on its batch, no sum on threads, in any kernel set",
          "[ops][sweep]") {
  for (const std::string& isa : testing::RunnableIsas()) {
    const testing::ForcedIsa forced(isa);
    INFO(isa);
    BackwardInputs inputs;
    RunSweptForward(inputs);
    SweepBackwardRows(inputs);
    SweepAttention(inputs);
  }
}

}  // namespace tandem
