// The prepared shapes are those that a model's ops use.
#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include <catch2/catch.hpp>

#include "common/backend/cuda_backend.h"
#include "common/ops/cuda/backward_ops.h"
#include "common/ops/cuda/forward_ops.h"
#include "tests/common/ops/cuda/linear/fake_lt.h"
#include "tests/emulator/emulated_cuda.h"

namespace tandem {
namespace {

using testing::FakeLt;
using testing::LtFault;
using Use = LinearShape::Use;

ModelSpec Spec() {
  ModelSpec spec;
  spec.vocab_size = 16384 + 24;
  spec.hidden_size = 16;
  spec.intermediate_size = 24;
  spec.num_heads = 2;
  spec.num_kv_heads = 1;
  spec.head_dim = 64;
  spec.qk_norm = true;
  return spec;
}

bool Has(const std::vector<LinearShape>& shapes, Use use, int64_t n, int64_t k, bool bias) {
  return std::any_of(shapes.begin(), shapes.end(), [&](const LinearShape& shape) {
    return shape.use == use && shape.n == n && shape.k == k && shape.bias == bias;
  });
}

}  // namespace

TEST_CASE("A model's products are its fused layers' and its head's, group by group", "[backend]") {
  ModelSpec spec = Spec();
  spec.qkv_bias = true;
  const std::vector<LinearShape> forward = ModelLinears(spec, 16384 + 5, false);
  for (const auto& [n, k] : {std::array<int64_t, 2>{16, 128}, {48, 16}, {16, 24}}) {
    REQUIRE(Has(forward, Use::kForward, n, k, false));
  }
  REQUIRE(Has(forward, Use::kForward, 256, 16, true));
  REQUIRE(Has(forward, Use::kLogits, 16384, 16, false));
  REQUIRE(Has(forward, Use::kLogits, 24, 16, false));
  REQUIRE(forward.size() == 6);
  const std::vector<LinearShape> training = ModelLinears(spec, 16384 + 5, true);
  REQUIRE(Has(training, Use::kInput, 256, 16, false));
  REQUIRE(Has(training, Use::kInput, 16, 24, false));
  REQUIRE(Has(training, Use::kAddInput, 16384, 16, false));
  REQUIRE(Has(training, Use::kAddInput, 5, 16, false));
  REQUIRE(Has(training, Use::kForward, 192, 16, true));  // q and k alone
  REQUIRE(training.size() == 13);
}

TEST_CASE("The ops of a head ask for the shapes that were prepared for it", "[backend]") {
  const ModelSpec spec = Spec();
  constexpr int64_t kKnown = 16384 + 5, kRows = 2;
  emulator::EmulatedCuda cuda;
  const auto context = CudaContext::Create(&cuda, 0).value();
  // It knows no algorithm: a shape that is asked for and was not prepared adds a choice.
  CudaLinearOptions options;
  options.lt = std::make_unique<FakeLt>();
  options.proof = {.buckets = {16, 32}, .reference_rows = 48};
  const std::shared_ptr<CudaLinear> linear =
      CudaLinear::Create(context.get(), std::move(options)).value();
  REQUIRE(linear->Prepare(ModelLinears(spec, kKnown, true)).ok());
  const size_t prepared = linear->Choices().size();
  CudaForwardOps forward(context.get(), linear);
  CudaBackwardOps backward(context.get(), linear);

  struct alignas(16) Row {
    uint16_t elements[16] = {};
  };
  std::vector<Row> weight(static_cast<size_t>(spec.vocab_size)), rows(kRows), drows(kRows);
  const LinearWeight head = {reinterpret_cast<const std::byte*>(weight.data()), spec.vocab_size, 16,
                             nullptr};
  const Matrix hidden = {rows.data(), kRows, 16, 16}, dhidden = {drows.data(), kRows, 16, 16};
  const std::vector<int32_t> targets = {3, 16386};
  const std::vector<float> ones(kRows, 1.0f);
  std::vector<float> log_probs(kRows), dhead(weight.size() * 16);
  std::vector<RowStats> stats(kRows);
  std::vector<SampledToken> drawn(kRows);
  forward.TokenLogProbs(hidden, head, kKnown, targets.data(), ones.data(), log_probs.data(),
                        stats.data());
  forward.Sample(hidden, head, kKnown, std::vector<SampleRow>(kRows), drawn.data());
  backward.TokenLogProbs(hidden, head, kKnown, targets.data(), ones.data(), stats.data(),
                         ones.data(), nullptr, dhidden, dhead.data());
  REQUIRE(context->Synchronize().ok());
  REQUIRE(linear->Choices().size() == prepared);
}

}  // namespace tandem
