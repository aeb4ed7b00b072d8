#include <algorithm>
#include <cmath>
#include <cstring>

#include <catch2/catch.hpp>

#include "common/ops/cpu/attention_plan.h"
#include "tests/common/ops/ops_fixture.h"

namespace tandem {
namespace {
using testing::TestKv;
using testing::TestMatrix;

double RotatedAt(const TestMatrix& qkv,
                 int64_t row,
                 int64_t col,
                 int64_t head_dim,
                 int64_t position,
                 const RopeTable& rope) {
  const int64_t half = head_dim / 2, d = col % head_dim, i = d % half;
  const double c = static_cast<double>(rope.cos[static_cast<size_t>(position * half + i)]);
  const double s = static_cast<double>(rope.sin[static_cast<size_t>(position * half + i)]);
  const double x = static_cast<double>(qkv.At(row, col));
  const double partner = static_cast<double>(qkv.At(row, d < half ? col + half : col - half));
  return d < half ? x * c - partner * s : x * c + partner * s;
}

// Attention of one sequence from position 0 in double, q and k rotated here.
std::vector<double> ReferenceAttention(const TestMatrix& qkv,
                                       const AttentionShape& shape,
                                       const RopeTable& rope) {
  const int64_t dim = shape.head_dim, group = shape.heads / shape.kv_heads;
  std::vector<double> out;
  for (int64_t row = 0; row < qkv.rows(); ++row) {
    for (int64_t head = 0; head < shape.heads; ++head) {
      const int64_t k_col = shape.q_cols() + head / group * dim;
      const int64_t v_col = k_col + shape.kv_heads * dim;
      std::vector<double> weights;
      for (int64_t key = 0; key <= row; ++key) {
        double score = 0;
        for (int64_t d = 0; d < dim; ++d) {
          score += RotatedAt(qkv, row, head * dim + d, dim, row, rope) *
                   RotatedAt(qkv, key, k_col + d, dim, key, rope);
        }
        weights.push_back(std::exp(score / std::sqrt(static_cast<double>(dim))));
      }
      double total = 0;
      for (const double w : weights) total += w;
      for (int64_t d = 0; d < dim; ++d) {
        double sum = 0;
        for (int64_t key = 0; key <= row; ++key) {
          sum += weights[static_cast<size_t>(key)] / total *
                 static_cast<double>(qkv.At(key, v_col + d));
        }
        out.push_back(sum);
      }
    }
  }
  return out;
}

const std::vector<AttentionShape> kShapes = {{2, 1, 16}, {9, 3, 64}, {4, 4, 6}, {5, 1, 24}};

// The whole sequence in one span.
TestMatrix Prefill(ForwardOps& ops,
                   DType dtype,
                   const AttentionShape& shape,
                   const RopeTable& rope,
                   const TestMatrix& source) {
  TestMatrix qkv = source;
  TestKv kv(shape, dtype, 8, 3);
  const std::vector<int32_t> blocks = kv.Take(qkv.rows());
  const std::vector<AttentionSpan> spans = {{0, qkv.rows(), 0, blocks.data()}};
  TestMatrix out(dtype, qkv.rows(), shape.q_cols());
  ops.RopeAndStore(qkv.view(), shape, rope, spans, kv.view());
  ops.Attention(qkv.view(), shape, spans, kv.view(), out.view());
  return out;
}
}  // namespace

TEST_CASE("Attention with RoPE agrees with a double reference", "[ops][attention]") {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const std::unique_ptr<ForwardOps> ops = testing::MakeForward(dtype, 2);
    for (const AttentionShape& shape : kShapes) {
      const RopeTable rope = testing::TestRope(shape.head_dim, 128);
      const TestMatrix qkv = TestMatrix::Random(dtype, 75, shape.qkv_cols(), 11);
      const TestMatrix out = Prefill(*ops, dtype, shape, rope, qkv);
      const std::vector<double> expected = ReferenceAttention(qkv, shape, rope);
      const double margin = dtype == DType::kFloat32 ? 3e-6 : 1.2e-2;
      for (int64_t i = 0; i < out.rows(); ++i) {
        for (int64_t j = 0; j < out.cols(); ++j) {
          const double value = expected[static_cast<size_t>(i * out.cols() + j)];
          REQUIRE(static_cast<double>(out.At(i, j)) == Approx(value).margin(margin));
        }
      }
    }
  }
}

TEST_CASE("Decode, chunked prefill and full prefill give the same bits", "[ops][attention]") {
  constexpr int64_t kTokens = 140;
  for (const DType dtype : {DType::kBFloat16, DType::kFloat32}) {
    for (const AttentionShape& shape : kShapes) {
      const RopeTable rope = testing::TestRope(shape.head_dim, 256);
      const TestMatrix source = TestMatrix::Random(dtype, kTokens, shape.qkv_cols(), 11);
      const std::unique_ptr<ForwardOps> one = testing::MakeForward(dtype, 1);
      const TestMatrix full = Prefill(*one, dtype, shape, rope, source);
      for (const int64_t chunk : {1, 2, 7, 37, 64, 65, 139}) {
        const std::unique_ptr<ForwardOps> ops = testing::MakeForward(dtype, 1 + chunk % 2);
        // A neighbour with other contents shares every batch, before or after the sequence.
        const TestMatrix other = TestMatrix::Random(dtype, kTokens, shape.qkv_cols(), 12, 3.0f);
        TestKv kv(shape, dtype, 16, static_cast<uint32_t>(chunk));
        const std::vector<int32_t> blocks = kv.Take(kTokens), others = kv.Take(kTokens);
        for (int64_t first = 0; first < kTokens; first += chunk) {
          const int64_t rows = std::min(chunk, kTokens - first);
          TestMatrix qkv(dtype, rows + 2, shape.qkv_cols());
          for (int64_t j = 0; j < qkv.cols(); ++j) {
            for (int64_t i = 0; i < rows; ++i) qkv.Set(i + 1, j, source.At(first + i, j));
            qkv.Set(0, j, other.At(first, j));
          }
          const std::vector<AttentionSpan> spans = {{0, 1, first, others.data()},
                                                    {1, rows, first, blocks.data()}};
          const TestMatrix out(dtype, rows + 2, shape.q_cols());
          ops->RopeAndStore(qkv.view(), shape, rope, spans, kv.view());
          ops->Attention(qkv.view(), shape, spans, kv.view(), out.view());
          for (int64_t i = 0; i < rows; ++i) REQUIRE(out.SameRow(i + 1, full, first + i));
        }
      }
    }
  }
}

namespace {
// 24 samples of one prompt; sample i adds i + 1 tokens to it. REQUIREs that together
// they give the bits of each alone.
void DecodeTogetherAndAlone(DType dtype, const AttentionShape& shape) {
  constexpr int64_t kPrompt = 128, kSamples = 24;
  const RopeTable rope = testing::TestRope(shape.head_dim, 256);
  const std::unique_ptr<ForwardOps> ops = testing::MakeForward(dtype, 1);
  TestKv kv(shape, dtype, 32, 5);
  const std::vector<int32_t> prompt = kv.Take(kPrompt);
  const std::vector<AttentionSpan> prefill = {{0, kPrompt, 0, prompt.data()}};
  const TestMatrix prompt_qkv = TestMatrix::Random(dtype, kPrompt, shape.qkv_cols(), 6);
  ops->RopeAndStore(prompt_qkv.view(), shape, rope, prefill, kv.view());
  std::vector<std::vector<int32_t>> blocks;
  std::vector<AttentionSpan> together;
  const TestMatrix qkv = TestMatrix::Random(dtype, kSamples, shape.qkv_cols(), 7);
  for (int64_t i = 0; i < kSamples; ++i) {
    blocks.push_back(prompt);
    blocks.back().push_back(kv.Take(1)[0]);
    const TestMatrix own =
        TestMatrix::Random(dtype, i + 1, shape.qkv_cols(), 8 + static_cast<uint32_t>(i));
    ops->RopeAndStore(own.view(), shape, rope, {{0, i + 1, kPrompt, blocks.back().data()}},
                      kv.view());
    together.push_back({i, 1, kPrompt + i, blocks.back().data()});
  }
  AttentionPlan plan;
  plan.Plan(together, shape, 1);
  REQUIRE(plan.groups() < kSamples);
  const TestMatrix out(dtype, kSamples, shape.q_cols());
  ops->Attention(qkv.view(), shape, together, kv.view(), out.view());
  for (int64_t i = 0; i < kSamples; ++i) {
    const TestMatrix alone(dtype, kSamples, shape.q_cols());
    ops->Attention(qkv.view(), shape, {together[static_cast<size_t>(i)]}, kv.view(), alone.view());
    REQUIRE(alone.SameRow(i, out, i));
  }
}

// Prefill in chunks of three into blocks full of NaN.
void PrefillUsedBlocks(DType dtype, const AttentionShape& shape) {
  constexpr int64_t kTokens = 70;
  const RopeTable rope = testing::TestRope(shape.head_dim, 128);
  const std::unique_ptr<ForwardOps> ops = testing::MakeForward(dtype, 2);
  const TestMatrix source = TestMatrix::Random(dtype, kTokens, shape.qkv_cols(), 11);
  const TestMatrix expected = Prefill(*ops, dtype, shape, rope, source);
  TestKv kv(shape, dtype, 8, 3);
  const std::vector<int32_t> blocks = kv.Take(kTokens);
  const int64_t bytes = KvBlockBytes(shape, dtype);
  for (const int32_t block : blocks) {
    std::memset(kv.view().base + block * bytes, 0xff, static_cast<size_t>(bytes));
  }
  for (int64_t first = 0; first < kTokens; first += 3) {
    const int64_t rows = std::min<int64_t>(3, kTokens - first);
    TestMatrix qkv(dtype, rows, shape.qkv_cols());
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < qkv.cols(); ++j) qkv.Set(i, j, source.At(first + i, j));
    }
    const std::vector<AttentionSpan> spans = {{0, rows, first, blocks.data()}};
    const TestMatrix chunk(dtype, rows, shape.q_cols());
    ops->RopeAndStore(qkv.view(), shape, rope, spans, kv.view());
    ops->Attention(qkv.view(), shape, spans, kv.view(), chunk.view());
    for (int64_t i = 0; i < rows; ++i) REQUIRE(chunk.SameRow(i, expected, first + i));
  }
}

// In fp32 and, by every kernel set, in bf16.
void ForAllKernels(void (*check)(DType, const AttentionShape&)) {
  for (const AttentionShape& shape : kShapes) {
    check(DType::kFloat32, shape);
    for (const std::string& isa : testing::RunnableIsas()) {
      const testing::ForcedIsa forced(isa);
      INFO(isa << ", " << shape.heads << " heads of " << shape.head_dim);
      check(DType::kBFloat16, shape);
    }
  }
}
}  // namespace

TEST_CASE("Decoding samples of one prompt together gives the bits of each alone",
          "[ops][attention]") {
  ForAllKernels(DecodeTogetherAndAlone);
}

TEST_CASE("What an earlier owner left in a block does not matter", "[ops][attention]") {
  ForAllKernels(PrefillUsedBlocks);
}

}  // namespace tandem
