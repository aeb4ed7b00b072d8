#include <cmath>
#include <string>

#include <catch2/catch.hpp>

#include "common/ops/cuda/attention/attention_kernels.h"
#include "common/ops/cuda/attention/attention_plan.h"
#include "tests/common/ops/cuda/attention/attention_fixture.h"

namespace tandem {
namespace {

using testing::GarbageKv;
using testing::RandomQkv;
using testing::RunInChunks;
using testing::ScopedSeed;
using testing::TestAttention;
using testing::TestMatrix;

constexpr int64_t kSegment = attention::kSegmentKeys;

TestMatrix Whole(const AttentionShape& shape, const RopeTable& rope, const TestMatrix& source) {
  TestAttention attention;
  GarbageKv kv(shape, KvBlocksFor(source.rows()) + 3, 1);
  const std::vector<int32_t> blocks = kv.Take(source.rows());
  return RunInChunks(attention, shape, rope, source, 0, source.rows(), kv.view(), blocks);
}

// Rows from `first` on in pieces of `chunk`, those before in one.
TestMatrix Continued(const AttentionShape& shape,
                     const RopeTable& rope,
                     const TestMatrix& source,
                     int64_t first,
                     int64_t chunk,
                     uint32_t placement) {
  TestAttention attention;
  GarbageKv kv(shape, KvBlocksFor(source.rows()) + 5, placement);
  const std::vector<int32_t> blocks = kv.Take(source.rows());
  if (first > 0) {
    TestMatrix before = source;
    attention->RopeAndStore(before.Rows(0, first), shape, rope, {{0, first, 0, blocks.data()}},
                            kv.view());
  }
  return RunInChunks(attention, shape, rope, source, first, chunk, kv.view(), blocks);
}

void RequireSameRows(const TestMatrix& some, const TestMatrix& all) {
  const int64_t first = all.rows() - some.rows();
  for (int64_t i = 0; i < some.rows(); ++i) {
    INFO("row " << first + i);
    REQUIRE(some.SameRow(i, all, first + i));
  }
}

}  // namespace

TEST_CASE("RoPE and attention agree with the fp32 reference", "[ops][cuda][attention]") {
  struct Case {
    AttentionShape shape;
    int64_t tokens;
  };
  for (const auto& [shape, tokens] : std::vector<Case>{{{2, 2, 64}, 64},
                                                       {{3, 1, 64}, 65},
                                                       {{4, 1, 128}, 63},
                                                       {{8, 1, 64}, 130},
                                                       {{1, 1, 128}, 70},
                                                       {{1, 1, 64}, kSegment + 65}}) {
    INFO(shape.heads << " over " << shape.kv_heads << " heads of " << shape.head_dim);
    const RopeTable rope = testing::TestRope(shape.head_dim, 1024);
    const TestMatrix source = RandomQkv(shape, tokens, 11);
    const TestMatrix out = Whole(shape, rope, source);
    const auto reference = testing::MakeForward(DType::kFloat32);
    TestMatrix qkv = testing::InFloat(source);
    testing::TestKv kv(shape, DType::kFloat32, KvBlocksFor(tokens), 1);
    const std::vector<int32_t> blocks = kv.Take(tokens);
    const std::vector<AttentionSpan> spans = {{0, tokens, 0, blocks.data()}};
    const TestMatrix expected(DType::kFloat32, tokens, shape.q_cols());
    reference->RopeAndStore(qkv.view(), shape, rope, spans, kv.view());
    reference->Attention(qkv.view(), shape, spans, kv.view(), expected.view());
    for (int64_t i = 0; i < tokens; ++i) {
      for (int64_t j = 0; j < out.cols(); ++j) {
        // Values of up to 1.5. A rotated q and k are each rounded by up to 2^-9 of themselves,
        // which moves scores of a few units by about 2^-7.
        REQUIRE(out.At(i, j) == Approx(expected.At(i, j)).margin(2.5e-2));
      }
    }
  }
}

TEST_CASE("Decode, chunks and a whole span give the same bits", "[ops][cuda][attention]") {
  struct Case {
    AttentionShape shape;
    int64_t tokens, first;
    std::vector<int64_t> chunks;
  };
  for (const auto& [shape, tokens, first, chunks] :
       std::vector<Case>{{{1, 1, 64}, 67, 0, {1, 7, 33}},
                         {{3, 1, 64}, 130, 60, {1, 11, 64}},
                         {{4, 1, 128}, 70, 61, {1, 5}},
                         {{8, 1, 64}, 66, 62, {1, 3}},
                         {{2, 2, 128}, 129, 126, {1, 2}},
                         {{1, 1, 64}, kSegment + 66, kSegment - 3, {1, 16, 65}},
                         {{1, 1, 64}, 2 * kSegment + 2, 2 * kSegment - 2, {1, 3}}}) {
    INFO(shape.heads << " over " << shape.kv_heads << " heads of " << shape.head_dim);
    const RopeTable rope = testing::TestRope(shape.head_dim, 2048);
    const TestMatrix source = RandomQkv(shape, tokens, 11);
    const TestMatrix whole = Whole(shape, rope, source);
    for (const int64_t chunk : chunks) {
      INFO("chunks of " << chunk);
      RequireSameRows(Continued(shape, rope, source, first, chunk, 7), whole);
      const ScopedSeed seed(testing::OtherSeed());
      RequireSameRows(Continued(shape, rope, source, first, chunk, 8), whole);
    }
  }
}

TEST_CASE("Other sequences of a batch do not show in a row", "[ops][cuda][attention]") {
  const AttentionShape shape = {6, 2, 64};
  const RopeTable rope = testing::TestRope(shape.head_dim, 1024);
  const TestMatrix source = RandomQkv(shape, 70, 11), other = RandomQkv(shape, kSegment + 40, 12);
  const TestMatrix whole = Whole(shape, rope, source), whole_other = Whole(shape, rope, other);
  TestAttention attention;
  GarbageKv kv(shape, 32, 3);
  const std::vector<int32_t> a = kv.Take(70), b = kv.Take(kSegment + 40);
  // The end of one decoded, of the other prefilled, between rows that are nobody's.
  TestMatrix before_a = source, before_b = other;
  attention->RopeAndStore(before_a.view(), shape, rope, {{0, 69, 0, a.data()}}, kv.view());
  attention->RopeAndStore(before_b.view(), shape, rope, {{0, kSegment - 5, 0, b.data()}},
                          kv.view());
  TestMatrix qkv(DType::kBFloat16, 48, shape.qkv_cols());
  for (int64_t j = 0; j < qkv.cols(); ++j) {
    qkv.Set(1, j, source.At(69, j));
    for (int64_t i = 0; i < 45; ++i) qkv.Set(2 + i, j, other.At(kSegment - 5 + i, j));
  }
  const std::vector<AttentionSpan> spans = {{1, 1, 69, a.data()}, {2, 45, kSegment - 5, b.data()}};
  TestMatrix out(DType::kBFloat16, 48, shape.q_cols());
  const TestMatrix untouched = out;
  attention->RopeAndStore(qkv.view(), shape, rope, spans, kv.view());
  attention->Forward(qkv.view(), shape, spans, kv.view(), out.view());
  REQUIRE(out.SameRow(1, whole, 69));
  for (int64_t i = 0; i < 45; ++i) REQUIRE(out.SameRow(2 + i, whole_other, kSegment - 5 + i));
  for (const int64_t row : {0, 47}) REQUIRE(out.SameRow(row, untouched, row));
}

TEST_CASE("Segments side by side and in one block give the same bits", "[ops][cuda][attention]") {
  const AttentionShape shape = {3, 1, 64};
  const int64_t tokens = kSegment + 70;
  const RopeTable rope = testing::TestRope(shape.head_dim, 1024);
  TestMatrix qkv = RandomQkv(shape, tokens, 11);
  TestAttention attention;
  GarbageKv kv(shape, 16, 3);
  const std::vector<int32_t> blocks = kv.Take(tokens);
  const std::vector<AttentionSpan> whole = {{0, tokens, 0, blocks.data()}};
  attention->RopeAndStore(qkv.view(), shape, rope, whole, kv.view());
  // Rows of one, of two segments, and both in a tile.
  const std::vector<AttentionSpan> spans = {{100, 1, 100, blocks.data()},
                                            {kSegment + 69, 1, kSegment + 69, blocks.data()},
                                            {kSegment - 2, 4, kSegment - 2, blocks.data()}};
  REQUIRE(attention::SegmentsSideBySide(3, 1, 2) == 2);
  TestMatrix side_by_side(DType::kBFloat16, tokens, shape.q_cols());
  TestMatrix in_one_block = side_by_side;
  attention->Forward(qkv.view(), shape, spans, kv.view(), side_by_side.view());
  const attention::ForwardPlan plan = attention::PlanForward(spans, 3);
  REQUIRE(plan.many.empty());
  attention::ForwardArgs args;
  args.qkv = static_cast<const Bf16*>(qkv.data());
  args.qkv_stride = qkv.cols();
  args.out = static_cast<Bf16*>(in_one_block.view().data);
  args.out_stride = in_one_block.cols();
  args.kv = reinterpret_cast<const unsigned char*>(kv.view().base);
  args.block_bytes = KvBlockBytes(shape, DType::kBFloat16);
  args.heads = {3, 1, 64, attention::Group::Of(3)};
  args.scale_log2 = static_cast<float>(1.4426950408889634 / 8);
  args.tables = plan.tables.data();
  args.tiles = plan.few.data();
  args.tile_count = static_cast<int64_t>(plan.few.size());
  attention::ForwardTiles(args, 1, nullptr);
  REQUIRE(side_by_side.SameBits(in_one_block));
}

TEST_CASE("A key behind a row does not matter, not even a NaN", "[ops][cuda][attention]") {
  const AttentionShape shape = {2, 1, 64};
  const RopeTable rope = testing::TestRope(shape.head_dim, 128);
  const TestMatrix source = RandomQkv(shape, 66, 11);
  const TestMatrix whole = Whole(shape, rope, source);
  TestMatrix changed = source;
  for (int64_t d = 0; d < 64; ++d) changed.Set(40, 2 * 64 + d, std::nanf(""));
  const TestMatrix out = Whole(shape, rope, changed);
  for (int64_t i = 0; i < 40; ++i) REQUIRE(out.SameRow(i, whole, i));
  for (int64_t i = 40; i < 66; ++i) REQUIRE(std::isnan(out.At(i, 0)));
}

TEST_CASE("K and V lie in a block by head, row-major", "[ops][cuda][attention]") {
  const AttentionShape shape = {2, 2, 64};
  const RopeTable rope = testing::TestRope(64, 128);
  const TestMatrix source = RandomQkv(shape, 66, 5);
  TestAttention attention;
  GarbageKv kv(shape, 4, 2);
  const std::vector<int32_t> blocks = kv.Take(66);
  TestMatrix qkv = source;
  attention->RopeAndStore(qkv.view(), shape, rope, {{0, 66, 0, blocks.data()}}, kv.view());
  for (const int64_t row : {0, 1, 63, 64, 65}) {
    for (const int64_t head : {0, 1}) {
      const auto* block =
          reinterpret_cast<const Bf16*>(kv.view().base + blocks[static_cast<size_t>(row / 64)] *
                                                             KvBlockBytes(shape, DType::kBFloat16));
      const Bf16* const k = block + head * 2 * 64 * 64 + row % 64 * 64;
      for (int64_t d = 0; d < 64; ++d) {
        REQUIRE(FromBf16(k[d]) == qkv.At(row, (2 + head) * 64 + d));
        REQUIRE(FromBf16(k[64 * 64 + d]) == source.At(row, (4 + head) * 64 + d));
      }
    }
  }
}

TEST_CASE("Shapes without kernels are refused by name", "[ops][cuda][attention]") {
  REQUIRE(CudaAttention::CheckShape({4, 2, 64}).ok());
  REQUIRE(CudaAttention::CheckShape({4, 2, 128}).ok());
  const absl::Status dim = CudaAttention::CheckShape({4, 2, 96});
  REQUIRE(dim.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(std::string(dim.message()).find("head_dim 96") != std::string::npos);
  REQUIRE(!CudaAttention::CheckShape({4, 3, 64}).ok());
}

}  // namespace tandem
