// A whole decoder layer, from residual to residual: against the CPU's ops, and against itself when
// the same tokens come in other pieces.
#include <cmath>
#include <functional>
#include <utility>

#include <catch2/catch.hpp>

#include "tests/common/ops/cuda/device_ops.h"
#include "tests/common/ops/ops_fixture.h"

namespace tandem {
namespace {
using testing::DeviceOps;
using testing::kBf16;
using testing::RowMajor;
using testing::TestKv;
using testing::TestMatrix;
using testing::TestWeight;

constexpr int64_t kHidden = 64, kInner = 96;
constexpr AttentionShape kShape = {2, 1, 64};
constexpr float kLayerEps = 1e-6f;

using WeightView = std::function<LinearWeight(const TestWeight&)>;

// Beside one of the layer's weights.
struct Adapter {
  static constexpr int64_t kRank = 6;
  // `ends`: of the parts, in rows.
  Adapter(std::vector<int64_t> ends, int64_t k, uint32_t seed)
      : a(kBf16, std::ssize(ends) * kRank, k, seed, 0.2f),
        b(kBf16, ends.back(), kRank, seed + 1, 0.1f),
        parts(std::move(ends)) {}
  TestWeight a, b;
  std::vector<int64_t> parts;
};

struct Layer {
  explicit Layer(bool with_adapters) : adapted(with_adapters) {}
  bool adapted;
  Adapter of_qkv{{128, 192, kShape.qkv_cols()}, kHidden, 20};
  Adapter of_o{{kHidden}, kShape.q_cols(), 22};
  Adapter of_gate_up{{kInner, 2 * kInner}, kHidden, 24};
  Adapter of_down{{kHidden}, kInner, 26};
  TestWeight qkv{kBf16, kShape.qkv_cols(), kHidden, 1, 0.2f, true};
  TestWeight o{kBf16, kHidden, kShape.q_cols(), 2, 0.2f};
  TestWeight gate_up{kBf16, 2 * kInner, kHidden, 3, 0.2f};
  TestWeight down{kBf16, kHidden, kInner, 4, 0.2f};
  TestMatrix norm1 = TestMatrix::Random(kBf16, 1, kHidden, 5);
  TestMatrix norm2 = TestMatrix::Random(kBf16, 1, kHidden, 6);
  TestMatrix q_norm = TestMatrix::Random(kBf16, 1, kShape.head_dim, 7);
  TestMatrix k_norm = TestMatrix::Random(kBf16, 1, kShape.head_dim, 8);
  RopeTable rope = testing::TestRope(kShape.head_dim, 128);

  LinearWeight With(const WeightView& view,
                    const TestWeight& weight,
                    const Adapter& adapter) const {
    LinearWeight with = view(weight);
    if (!adapted) return with;
    with.adapter = {.parts = static_cast<int>(adapter.parts.size()),
                    .a = view(adapter.a).values,
                    .b = view(adapter.b).values,
                    .rank = Adapter::kRank,
                    .scaling = 1.5f,
                    .part = {}};
    int64_t row = 0;
    for (size_t i = 0; i < adapter.parts.size(); ++i) {
      with.adapter.part[i] = {row, adapter.parts[i] - row};
      row = adapter.parts[i];
    }
    return with;
  }

  // The layer's result for rows of `x` that lie as `spans` say.
  TestMatrix Run(ForwardOps& ops,
                 const WeightView& view,
                 Matrix x,
                 const std::vector<AttentionSpan>& spans,
                 KvLayer kv) const {
    const int64_t rows = x.rows;
    TestMatrix norm(kBf16, rows, kHidden), qkv_out(kBf16, rows, kShape.qkv_cols());
    TestMatrix attn(kBf16, rows, kShape.q_cols()), mid(kBf16, rows, kHidden);
    TestMatrix wide(kBf16, rows, 2 * kInner), inner(kBf16, rows, kInner);
    TestMatrix out(kBf16, rows, kHidden);
    ops.RmsNorm(x, norm1.data(), kLayerEps, norm.view());
    ops.Linear(norm.view(), With(view, qkv, of_qkv), qkv_out.view());
    ops.HeadRmsNorms(qkv_out.view(), kShape, q_norm.data(), k_norm.data(), kLayerEps);
    ops.RopeAndStore(qkv_out.view(), kShape, rope, spans, kv);
    ops.Attention(qkv_out.view(), kShape, spans, kv, attn.view());
    ops.Linear(attn.view(), With(view, o, of_o), mid.view());
    ops.AddRmsNorm(mid.view(), x, norm2.data(), kLayerEps, norm.view());
    ops.Linear(norm.view(), With(view, gate_up, of_gate_up), wide.view());
    ops.SiluMul(wide.view(), inner.view());
    ops.Linear(inner.view(), With(view, down, of_down), out.view());
    ops.Add(out.view(), mid.view());
    return out;
  }
};

AttentionSpan Span(int64_t row,
                   int64_t rows,
                   int64_t position,
                   const std::vector<int32_t>& blocks) {
  return {.first_row = row, .rows = rows, .first_position = position, .blocks = blocks.data()};
}
}  // namespace

TEST_CASE("A layer on a GPU agrees with the CPU's", "[cuda][layer]") {
  constexpr int64_t kTokens = 70;
  const bool adapted = GENERATE(false, true);
  const Layer layer(adapted);
  const TestMatrix x = TestMatrix::Random(kBf16, kTokens, kHidden, 9);
  DeviceOps device;
  TestKv kv_here(kShape, kBf16, 4, 1), kv_there(kShape, kBf16, 4, 1);
  const std::vector<int32_t> here = kv_here.Take(kTokens), there = kv_there.Take(kTokens);
  const TestMatrix out =
      layer.Run(device.forward(), RowMajor, x.view(), {Span(0, kTokens, 0, here)}, kv_here.view());
  REQUIRE(device.context().Synchronize().ok());
  const auto cpu = testing::MakeForward(kBf16);
  const TestMatrix expected = layer.Run(
      *cpu, [](const TestWeight& weight) { return weight.view(); }, x.view(),
      {Span(0, kTokens, 0, there)}, kv_there.view());
  double error = 0, size = 0;
  for (int64_t row = 0; row < kTokens; ++row) {
    for (int64_t col = 0; col < kHidden; ++col) {
      const auto a = static_cast<double>(out.At(row, col));
      const auto b = static_cast<double>(expected.At(row, col));
      // A few roundings of values of this size to eight bits.
      REQUIRE(std::fabs(a - b) < 0.05);
      error += (a - b) * (a - b);
      size += b * b;
    }
  }
  REQUIRE(std::sqrt(error / size) < 4e-3);
}

TEST_CASE("Decode, chunked prefill and the trainer's forward give the same bits", "[cuda][layer]") {
  // Beyond a block, so that tiles and blocks of a row differ between pieces.
  constexpr int64_t kTokens = 70;
  const bool adapted = GENERATE(false, true);
  const Layer layer(adapted);
  const TestMatrix x = TestMatrix::Random(kBf16, kTokens, kHidden, 9);
  const TestMatrix other = TestMatrix::Random(kBf16, kTokens, kHidden, 10);
  DeviceOps device;
  ForwardOps& ops = device.forward();
  TestKv kv(kShape, kBf16, 12, 1);

  // The trainer's way: both sequences, whole, in one batch.
  TestMatrix both(kBf16, 2 * kTokens, kHidden);
  for (int64_t row = 0; row < kTokens; ++row) {
    for (int64_t col = 0; col < kHidden; ++col) {
      both.Set(row, col, other.At(row, col));
      both.Set(kTokens + row, col, x.At(row, col));
    }
  }
  const std::vector<int32_t> first = kv.Take(kTokens), second = kv.Take(kTokens);
  const TestMatrix whole =
      layer.Run(ops, RowMajor, both.view(),
                {Span(0, kTokens, 0, first), Span(kTokens, kTokens, 0, second)}, kv.view());

  // The rollout's: a prefill in chunks, then token by token beside another sequence.
  const std::vector<int32_t> blocks = kv.Take(kTokens), beside = kv.Take(kTokens);
  int64_t position = 0;
  const auto require_rows = [&](const TestMatrix& out, int64_t row, int64_t rows) {
    for (int64_t i = 0; i < rows; ++i) REQUIRE(out.SameRow(row + i, whole, kTokens + position + i));
    position += rows;
  };
  for (const int64_t rows : {17, 45, 3}) {
    const TestMatrix out = layer.Run(ops, RowMajor, x.Rows(position, rows),
                                     {Span(0, rows, position, blocks)}, kv.view());
    require_rows(out, 0, rows);
  }
  for (int64_t step = 0; position < kTokens; ++step) {
    const testing::ScopedSeed seed(testing::TwoSeeds()[step % 2]);
    TestMatrix batch(kBf16, 2, kHidden);
    for (int64_t col = 0; col < kHidden; ++col) {
      batch.Set(0, col, other.At(step, col));
      batch.Set(1, col, x.At(position, col));
    }
    const TestMatrix out =
        layer.Run(ops, RowMajor, batch.view(),
                  {Span(0, 1, step, beside), Span(1, 1, position, blocks)}, kv.view());
    REQUIRE(out.SameRow(0, whole, step));
    require_rows(out, 1, 1);
  }
  REQUIRE(device.context().Synchronize().ok());
}

}  // namespace tandem
