// When data is uploaded, and decode steps as graphs.
#include <algorithm>

#include <catch2/catch.hpp>

#include "common/memory/cuda_scratch.h"
#include "tests/common/ops/cuda/attention/attention_fixture.h"
#include "tests/emulator/emulated_cuda.h"

namespace tandem {
namespace {

using testing::GarbageKv;
using testing::RandomQkv;
using testing::TestAttention;
using testing::TestMatrix;

// Attention on an emulator whose log and memory the test looks at.
struct Emulated {
  emulator::EmulatedCuda* cuda = new emulator::EmulatedCuda;  // the attention's
  TestAttention attention{std::unique_ptr<CudaApi>(cuda)};

  int64_t Copies() const {
    const std::vector<std::string> calls = cuda->calls();
    return std::count(calls.begin(), calls.end(), "Copy");
  }
};

}  // namespace

TEST_CASE("Layers of a step share one upload of their spans", "[ops][cuda][attention][emulator]") {
  const AttentionShape shape = {2, 1, 64};
  const RopeTable rope = testing::TestRope(64, 128);
  Emulated emulated;
  TestAttention& attention = emulated.attention;
  GarbageKv kv(shape, 4, 1);
  const std::vector<int32_t> blocks = kv.Take(10);
  TestMatrix qkv = RandomQkv(shape, 10, 3), dqkv = qkv;
  const TestMatrix out(DType::kBFloat16, 10, shape.q_cols());
  const auto layer = [&](const std::vector<AttentionSpan>& spans) {
    const int64_t before = emulated.Copies();
    attention->RopeAndStore(qkv.view(), shape, rope, spans, kv.view());
    attention->Forward(qkv.view(), shape, spans, kv.view(), out.view());
    attention->Backward(qkv.view(), shape, spans, out.view(), out.view(), dqkv.view());
    attention->Rope(dqkv.view(), shape, rope, spans);
    return emulated.Copies() - before;
  };
  REQUIRE(layer({{0, 10, 0, blocks.data()}}) > 2);
  const std::vector<int32_t> same = blocks;
  REQUIRE(layer({{0, 10, 0, same.data()}}) == 0);
  const int64_t changed = layer({{0, 9, 0, same.data()}});
  REQUIRE(changed > 0);
  // What was uploaded may be gone after a wait; the rope table stays.
  REQUIRE(attention.context().Synchronize().ok());
  REQUIRE(layer({{0, 9, 0, same.data()}}) == changed);
  REQUIRE(layer({{0, 9, 0, same.data()}}) == 0);
  // Another table at the same address.
  RopeTable other = testing::TestRope(64, 128);
  REQUIRE(layer({{0, 9, 0, same.data()}}) == 0);
  attention->Rope(dqkv.view(), shape, other, {{0, 9, 0, same.data()}});
  const int64_t before = emulated.Copies();
  for (float& sine : other.sin) sine = -sine;
  attention->Rope(dqkv.view(), shape, other, {{0, 9, 0, same.data()}});
  REQUIRE(emulated.Copies() == before + 2);
}

TEST_CASE("Two objects of a context keep their own rope tables",
          "[ops][cuda][attention][emulator]") {
  const AttentionShape shape = {2, 1, 64};
  const RopeTable small = testing::TestRope(64, 128), large = testing::TestRope(64, 4096);
  const std::vector<AttentionSpan> spans = {{0, 10, 0, nullptr}};
  const TestMatrix source = RandomQkv(shape, 10, 3);
  Emulated emulated;
  TestAttention& one = emulated.attention;
  CudaAttention other(&one.context());
  TestMatrix a = source, b = source, again = source;
  one->Rope(a.view(), shape, small, spans);
  other.Rope(b.view(), shape, large, spans);
  const int64_t held = one.context().held_bytes();
  one->Rope(again.view(), shape, small, spans);
  REQUIRE(a.SameBits(b));
  REQUIRE(a.SameBits(again));
  TestMatrix changed = source;
  one->Rope(changed.view(), shape, large, spans);
  REQUIRE(a.SameBits(changed));
  REQUIRE(one.context().held_bytes() - held == RopeBytes(4096, 32) - RopeBytes(128, 32));
  const int64_t used = emulated.cuda->used_bytes();
  one->Rope(changed.view(), shape, small, spans);
  REQUIRE(emulated.cuda->used_bytes() < used);
}

TEST_CASE("A rope table that changes in a graph's step is not copied from again and again",
          "[ops][cuda][attention][emulator]") {
  const AttentionShape shape = {2, 1, 64};
  const int changed_at = GENERATE(1, 2, 3);  // while the step is captured, and replayed
  RopeTable first = testing::TestRope(64, 128);
  RopeTable second = first;
  for (float& sine : second.sin) sine = -sine;
  Emulated emulated, other;
  TestAttention& attention = emulated.attention;
  TestAttention& reference = other.attention;
  CudaContext& context = attention.context();
  GarbageKv kv(shape, 4, 1), reference_kv(shape, 4, 1);
  const std::vector<int32_t> blocks = kv.Take(64), reference_blocks = reference_kv.Take(64);
  const TestMatrix source = RandomQkv(shape, 1, 3);
  TestMatrix qkv = source;  // it stays where it is, as a graph wants it
  for (int step = 0; step < 6; ++step) {
    INFO("changed at " << changed_at << ", step " << step);
    const RopeTable& rope = step < changed_at ? first : second;
    for (int64_t j = 0; j < qkv.cols(); ++j) qkv.Set(0, j, source.At(0, j));
    const std::vector<AttentionSpan> spans = {{0, 1, step, blocks.data()}};
    context.BeginGraph(1);
    attention->RopeAndStore(qkv.view(), shape, rope, spans, kv.view());
    if (!context.EndGraph()) {
      attention->RopeAndStore(qkv.view(), shape, rope, spans, kv.view());
    }
    REQUIRE(context.Synchronize().ok());
    TestMatrix want = source;
    reference->RopeAndStore(want.view(), shape, rope, {{0, 1, step, reference_blocks.data()}},
                            reference_kv.view());
    REQUIRE(reference.context().Synchronize().ok());
    REQUIRE(qkv.SameBits(want));
    // Its memory is used again by somebody.
    if (step == changed_at) std::fill(first.cos.begin(), first.cos.end(), 7.0f);
  }
  const std::vector<std::string> calls = emulated.cuda->calls();
  REQUIRE(std::count(calls.begin(), calls.end(), "LaunchGraph") > 0);
}

TEST_CASE("Decode steps that are one graph give the bits of a prefill", "[ops][cuda][attention]") {
  const AttentionShape shape = {3, 1, 64};
  constexpr int64_t kTokens = 70, kFirst = 62, kOther = 20;
  const RopeTable rope = testing::TestRope(64, 1024);
  const TestMatrix source = RandomQkv(shape, kTokens, 3);
  TestAttention attention;
  CudaContext& context = attention.context();
  GarbageKv kv(shape, 16, 1), whole_kv(shape, 16, 2);
  const std::vector<int32_t> blocks = kv.Take(kTokens), other = kv.Take(600);
  const std::vector<int32_t> whole_blocks = whole_kv.Take(kTokens);
  const TestMatrix whole = testing::RunInChunks(attention, shape, rope, source, 0, kTokens,
                                                whole_kv.view(), whole_blocks);
  TestMatrix before = source;
  attention->RopeAndStore(before.view(), shape, rope, {{0, kFirst, 0, blocks.data()}}, kv.view());
  // A second sequence decides the bound: two segments every time.
  TestMatrix long_rows = RandomQkv(shape, 600, 4);
  attention->RopeAndStore(long_rows.view(), shape, rope, {{0, 550, 0, other.data()}}, kv.view());
  // Inputs and results stay where they are, as a graph wants it; two layers of one input.
  TestMatrix qkv(DType::kBFloat16, 2, shape.qkv_cols()), second = qkv;
  const TestMatrix out(DType::kBFloat16, 2, shape.q_cols()), second_out = out;
  TestMatrix other_rows = RandomQkv(shape, kOther, 5);
  for (int64_t row = kFirst; row < kTokens; ++row) {
    for (int64_t j = 0; j < qkv.cols(); ++j) {
      qkv.Set(0, j, source.At(row, j));
      qkv.Set(1, j, other_rows.At(row - kFirst, j));
      second.Set(0, j, source.At(row, j));
      second.Set(1, j, other_rows.At(row - kFirst, j));
    }
    const std::vector<AttentionSpan> spans = {{0, 1, row, blocks.data()},
                                              {1, 1, 550 + row - kFirst, other.data()}};
    REQUIRE(AttentionSegmentBound(spans) == 2);
    context.BeginGraph(2);
    for (const auto& [in, result] : {std::pair(&qkv, &out), std::pair(&second, &second_out)}) {
      attention->RopeAndStore(in->view(), shape, rope, spans, kv.view());
      attention->Forward(in->view(), shape, spans, kv.view(), result->view());
    }
    REQUIRE(context.EndGraph());
    REQUIRE(context.Synchronize().ok());
    REQUIRE(out.SameRow(0, whole, row));
    REQUIRE(second_out.SameBits(out));
  }
  REQUIRE(context.graphs() == 1);
}

}  // namespace tandem
