#include <cmath>

#include <catch2/catch.hpp>

#include "tests/common/ops/cuda/attention/attention_fixture.h"

namespace tandem {
namespace {

using testing::RandomQkv;
using testing::ScopedSeed;
using testing::TestAttention;
using testing::TestMatrix;

// Rows of spans, rotated, with an output that is not the forward's own: backward is linear in dout
// and takes out as it is.
struct Input {
  Input(const AttentionShape& wanted, int64_t rows, uint32_t seed)
      : shape(wanted),
        qkv(RandomQkv(wanted, rows, seed)),
        out(TestMatrix::Random(DType::kBFloat16, rows, wanted.q_cols(), seed + 1)),
        dout(TestMatrix::Random(DType::kBFloat16, rows, wanted.q_cols(), seed + 2)) {}

  AttentionShape shape;
  TestMatrix qkv, out, dout;
};

TestMatrix Backward(const Input& in, const std::vector<AttentionSpan>& spans) {
  TestAttention attention;
  TestMatrix dqkv(DType::kBFloat16, in.qkv.rows(), in.qkv.cols());
  attention->Backward(in.qkv.view(), in.shape, spans, in.out.view(), in.dout.view(), dqkv.view());
  return dqkv;
}

// What makes `out` the forward's, in fp32, for keys and values of the rows.
void ForwardOfAttention(Input& in,
                        const std::vector<AttentionSpan>& spans,
                        const std::vector<int>& parent) {
  const AttentionShape& shape = in.shape;
  const int64_t dim = shape.head_dim, group = shape.heads / shape.kv_heads;
  for (size_t s = 0; s < spans.size(); ++s) {
    const AttentionSpan& span = spans[s];
    const auto row_of = [&](int64_t position) {
      return position < span.first_position
                 ? spans[static_cast<size_t>(parent[s])].first_row + position
                 : span.first_row + position - span.first_position;
    };
    for (int64_t i = 0; i < span.rows; ++i) {
      const int64_t row = span.first_row + i, keys = span.first_position + i + 1;
      for (int64_t head = 0; head < shape.heads; ++head) {
        const int64_t k_col = shape.q_cols() + head / group * dim;
        const int64_t v_col = k_col + shape.kv_heads * dim;
        std::vector<float> sums(static_cast<size_t>(dim));
        float total = 0;
        for (int64_t key = 0; key < keys; ++key) {
          float score = 0;
          for (int64_t d = 0; d < dim; ++d) {
            score += in.qkv.At(row, head * dim + d) * in.qkv.At(row_of(key), k_col + d);
          }
          const float weight = std::exp(score / std::sqrt(static_cast<float>(dim)));
          total += weight;
          for (int64_t d = 0; d < dim; ++d) {
            sums[static_cast<size_t>(d)] += weight * in.qkv.At(row_of(key), v_col + d);
          }
        }
        for (int64_t d = 0; d < dim; ++d) {
          in.out.Set(row, head * dim + d, sums[static_cast<size_t>(d)] / total);
        }
      }
    }
  }
}

void RequireNearReference(Input in,
                          const std::vector<AttentionSpan>& spans,
                          const std::vector<int>& parent) {
  ForwardOfAttention(in, spans, parent);
  const TestMatrix dqkv = Backward(in, spans);
  const auto reference = testing::MakeBackward(DType::kFloat32);
  const TestMatrix qkv = testing::InFloat(in.qkv), out = testing::InFloat(in.out);
  const TestMatrix dout = testing::InFloat(in.dout);
  const TestMatrix expected(DType::kFloat32, qkv.rows(), qkv.cols());
  reference->Attention(qkv.view(), in.shape, spans, out.view(), dout.view(), expected.view());
  for (const AttentionSpan& span : spans) {
    for (int64_t i = span.first_row; i < span.first_row + span.rows; ++i) {
      for (int64_t j = 0; j < dqkv.cols(); ++j) {
        // Sums over rows of products whose factors are rounded by 2^-9; those of prefixes and
        // first keys have tens of terms of up to a few units.
        const float value = expected.At(i, j);
        INFO("row " << i << " column " << j);
        REQUIRE(dqkv.At(i, j) == Approx(value).margin(3e-2).epsilon(2e-2));
      }
    }
  }
}

}  // namespace

TEST_CASE("Attention's gradients agree with the fp32 reference", "[ops][cuda][attention]") {
  RequireNearReference(Input({2, 2, 64}, 64, 1), {{0, 64, 0, nullptr}}, {0});
  RequireNearReference(Input({3, 1, 64}, 67, 2), {{1, 65, 0, nullptr}}, {0});
  RequireNearReference(Input({4, 1, 128}, 40, 3), {{0, 40, 0, nullptr}}, {0});
  RequireNearReference(Input({1, 1, 128}, 130, 4), {{0, 129, 0, nullptr}}, {0});
  RequireNearReference(Input({8, 1, 64}, 70, 5), {{0, 33, 0, nullptr}, {33, 37, 0, nullptr}},
                       {0, 0});
}

TEST_CASE("Gradients of a shared prefix sum over the spans that continue it",
          "[ops][cuda][attention]") {
  // A prompt of 70 whose last token belongs to its own span alone, and two answers; then one of
  // another prompt, of which nobody else knows.
  const std::vector<AttentionSpan> spans = {
      {0, 70, 0, nullptr}, {70, 20, 69, nullptr, 0}, {90, 5, 0, nullptr}, {95, 66, 69, nullptr, 0}};
  RequireNearReference(Input({2, 1, 64}, 161, 6), spans, {0, 0, 0, 0});
  RequireNearReference(Input({1, 1, 128}, 161, 7), spans, {0, 0, 0, 0});
  // More spans than parts.
  std::vector<AttentionSpan> many = {{0, 20, 0, nullptr}};
  for (int64_t i = 0; i < 6; ++i) many.push_back({20 + 7 * i, 7, 20, nullptr, 0});
  RequireNearReference(Input({3, 1, 64}, 62, 8), many, std::vector<int>(7));
}

TEST_CASE("Gradients repeat, whatever the order of threads and the rest of the batch",
          "[ops][cuda][attention]") {
  for (const AttentionShape& shape : {AttentionShape{3, 1, 64}, AttentionShape{2, 2, 128}}) {
    const Input in(shape, 150, 8);
    const std::vector<AttentionSpan> alone = {{0, 40, 0, nullptr}, {100, 30, 33, nullptr, 0}};
    const std::vector<AttentionSpan> together = {{40, 60, 0, nullptr},
                                                 {0, 40, 0, nullptr},
                                                 {130, 9, 50, nullptr, 40},
                                                 {100, 30, 33, nullptr, 0}};
    const TestMatrix one = Backward(in, alone);
    REQUIRE(one.SameBits(Backward(in, alone)));
    const TestMatrix other = Backward(in, together);
    for (int64_t row = 0; row < 130; ++row) {
      if (row < 40 || row >= 100) REQUIRE(one.SameRow(row, other, row));
    }
    const ScopedSeed seed(testing::OtherSeed());
    REQUIRE(one.SameBits(Backward(in, alone)));
    REQUIRE(other.SameBits(Backward(in, together)));
  }
}

TEST_CASE("A gradient's rows do not depend on where they lie", "[ops][cuda][attention]") {
  const AttentionShape shape = {2, 1, 64};
  const Input in(shape, 66, 9);
  Input moved(shape, 80, 10);
  for (int64_t i = 0; i < 66; ++i) {
    for (int64_t j = 0; j < in.qkv.cols(); ++j) moved.qkv.Set(i + 11, j, in.qkv.At(i, j));
    for (int64_t j = 0; j < in.out.cols(); ++j) {
      moved.out.Set(i + 11, j, in.out.At(i, j));
      moved.dout.Set(i + 11, j, in.dout.At(i, j));
    }
  }
  const TestMatrix one = Backward(in, {{0, 66, 0, nullptr}});
  const TestMatrix other = Backward(moved, {{77, 3, 0, nullptr}, {11, 66, 0, nullptr}});
  for (int64_t i = 0; i < 66; ++i) REQUIRE(one.SameRow(i, other, i + 11));
}

TEST_CASE("The gradient of RoPE turns q and k back", "[ops][cuda][attention]") {
  const AttentionShape shape = {3, 1, 64};
  const RopeTable rope = testing::TestRope(64, 300);
  const TestMatrix source = RandomQkv(shape, 20, 3);
  const std::vector<AttentionSpan> spans = {{2, 10, 250, nullptr}, {12, 8, 0, nullptr}};
  TestAttention attention;
  TestMatrix turned = source, expected = testing::InFloat(source);
  attention->Rope(turned.view(), shape, rope, spans);
  testing::MakeBackward(DType::kFloat32)->Rope(expected.view(), shape, rope, spans);
  for (int64_t i = 0; i < 20; ++i) {
    for (int64_t j = 0; j < source.cols(); ++j) {
      if (i < 2 || j >= 4 * 64) {
        REQUIRE(turned.At(i, j) == source.At(i, j));
      } else {
        REQUIRE(turned.At(i, j) == Approx(expected.At(i, j)).margin(1e-6).epsilon(0x1p-8));
      }
    }
  }
}

}  // namespace tandem
