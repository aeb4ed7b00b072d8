#include "common/ops/cuda/backward_ops.h"

#include <cmath>

#include <catch2/catch.hpp>

#include "tests/common/ops/cuda/device_ops.h"
#include "tests/common/ops/ops_fixture.h"

namespace tandem {
namespace {
using testing::DeviceOps;
using testing::kBf16;
using testing::RandomFloats;
using testing::RowMajor;
using testing::SameBits;
using testing::TestMatrix;
using testing::TestWeight;
using testing::View;

constexpr int64_t kBackwardVocab = 1500, kBackwardLimit = 1403, kBackwardDim = 64;

// The gradient of the head for some rows, and what it needs of the forward.
struct HeadGradient {
  HeadGradient(int64_t rows, int64_t first_row)
      : dhidden(kBf16, rows, kBackwardDim),
        dhead(static_cast<size_t>(kBackwardVocab * kBackwardDim), 0.25f) {
    for (int64_t i = first_row; i < first_row + rows; ++i) {
      targets.push_back(static_cast<int32_t>(i * 191 % kBackwardLimit));
      temperatures.push_back(i % 3 == 0 ? 0.0f : 0.5f + 0.5f * static_cast<float>(i % 2));
      grad_log_probs.push_back(0.7f - 0.2f * static_cast<float>(i));
      grad_entropy.push_back(i % 4 == 1 ? 0.0f : 0.05f * static_cast<float>(i % 3));
    }
  }
  void Run(ForwardOps& forward, BackwardOps& backward, Matrix hidden, const LinearWeight& head) {
    std::vector<float> log_probs(targets.size());
    std::vector<RowStats> stats(targets.size());
    forward.TokenLogProbs(hidden, head, kBackwardLimit, targets.data(), temperatures.data(),
                          log_probs.data(), stats.data());
    backward.TokenLogProbs(hidden, head, kBackwardLimit, targets.data(), temperatures.data(),
                           stats.data(), grad_log_probs.data(), grad_entropy.data(), dhidden.view(),
                           dhead.data());
  }
  TestMatrix dhidden;
  std::vector<float> dhead;
  std::vector<int32_t> targets;
  std::vector<float> temperatures, grad_log_probs, grad_entropy;
};

// |a - b| / |b|, as vectors.
template <typename At>
double Distance(int64_t count, const At& at) {
  double error = 0, size = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto [a, b] = at(i);
    error += static_cast<double>(a - b) * static_cast<double>(a - b);
    size += static_cast<double>(b) * static_cast<double>(b);
  }
  return std::sqrt(error / size);
}
}  // namespace

TEST_CASE("A GPU's backward refuses fp32", "[cuda][backward]") {
  DeviceOps device;
  REQUIRE(CreateCudaBackwardOps(DType::kFloat32, &device.context()).status().code() ==
          absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("The gradient of the head agrees with the CPU's", "[cuda][backward]") {
  constexpr int64_t kRows = 9;
  DeviceOps device;
  const TestMatrix hidden = TestMatrix::Random(kBf16, kRows, kBackwardDim, 1, 2.0f);
  const TestWeight head(kBf16, kBackwardVocab, kBackwardDim, 2, 0.5f);
  HeadGradient here(kRows, 0), there(kRows, 0);
  here.Run(device.forward(), device.backward(), hidden.view(), RowMajor(head));
  REQUIRE(device.context().Synchronize().ok());
  const auto forward = testing::MakeForward(kBf16);
  const auto backward = testing::MakeBackward(kBf16);
  there.Run(*forward, *backward, hidden.view(), head.view());
  REQUIRE(Distance(kRows * kBackwardDim, [&](int64_t i) {
            return std::pair(here.dhidden.At(i / kBackwardDim, i % kBackwardDim),
                             there.dhidden.At(i / kBackwardDim, i % kBackwardDim));
          }) < 0x1p-8);
  REQUIRE(Distance(kBackwardVocab * kBackwardDim, [&](int64_t i) {
            return std::pair(here.dhead[static_cast<size_t>(i)] - 0.25f,
                             there.dhead[static_cast<size_t>(i)] - 0.25f);
          }) < 0x1p-9);
  for (size_t i = kBackwardLimit * kBackwardDim; i < here.dhead.size(); ++i)
    REQUIRE(here.dhead[i] == 0.25f);
}

TEST_CASE("The gradient of a head of several groups of ids is the CPU's, and so is its last group",
          "[cuda][backward]") {
  // One group of 16,384 ids and some more, of which the tokenizer knows 19.
  constexpr int64_t kRows = 3, kIds = 16384 + 40, kKnown = 16384 + 19, kWidth = 16;
  DeviceOps device;
  const TestMatrix hidden = TestMatrix::Random(kBf16, kRows, kWidth, 1, 2.0f);
  const TestWeight head(kBf16, kIds, kWidth, 2, 0.5f);
  const std::vector<int32_t> targets = {5, 16390, 16383};
  const std::vector<float> ones(kRows, 1.0f);
  const auto run = [&](ForwardOps& forward, BackwardOps& backward, const LinearWeight& weight,
                       TestMatrix& dhidden) {
    std::vector<float> dhead(kIds * kWidth), log_probs(kRows);
    std::vector<RowStats> stats(kRows);
    forward.TokenLogProbs(hidden.view(), weight, kKnown, targets.data(), ones.data(),
                          log_probs.data(), stats.data());
    backward.TokenLogProbs(hidden.view(), weight, kKnown, targets.data(), ones.data(), stats.data(),
                           ones.data(), nullptr, dhidden.view(), dhead.data());
    return dhead;
  };
  TestMatrix here(kBf16, kRows, kWidth), there(kBf16, kRows, kWidth);
  const std::vector<float> dhead = run(device.forward(), device.backward(), RowMajor(head), here);
  REQUIRE(device.context().Synchronize().ok());
  const auto forward = testing::MakeForward(kBf16);
  const auto backward = testing::MakeBackward(kBf16);
  const std::vector<float> expected = run(*forward, *backward, head.view(), there);
  REQUIRE(Distance(kRows * kWidth, [&](int64_t i) {
            return std::pair(here.At(i / kWidth, i % kWidth), there.At(i / kWidth, i % kWidth));
          }) < 0x1p-8);
  REQUIRE(Distance(kIds * kWidth, [&](int64_t i) {
            return std::pair(dhead[static_cast<size_t>(i)], expected[static_cast<size_t>(i)]);
          }) < 0x1p-8);
  for (size_t i = kKnown * kWidth; i < dhead.size(); ++i) REQUIRE(dhead[i] == 0.0f);
}

TEST_CASE("A row's gradient through the head is its own, in any order", "[cuda][backward]") {
  constexpr int64_t kRows = 9;
  DeviceOps device;
  const TestMatrix hidden = TestMatrix::Random(kBf16, kRows, kBackwardDim, 1, 2.0f);
  const TestWeight head(kBf16, kBackwardVocab, kBackwardDim, 2, 0.5f);
  HeadGradient full(kRows, 0), again(kRows, 0), part(3, 4);
  full.Run(device.forward(), device.backward(), hidden.view(), RowMajor(head));
  const testing::ScopedSeed seed(testing::OtherSeed());
  again.Run(device.forward(), device.backward(), hidden.view(), RowMajor(head));
  part.Run(device.forward(), device.backward(), hidden.Rows(4, 3), RowMajor(head));
  REQUIRE(device.context().Synchronize().ok());
  REQUIRE(again.dhidden.SameBits(full.dhidden));
  REQUIRE(SameBits(again.dhead, full.dhead));
  for (int64_t row = 0; row < 3; ++row) REQUIRE(part.dhidden.SameRow(row, full.dhidden, row + 4));
}

TEST_CASE("Rows are added to where they came from, in order", "[cuda][backward]") {
  DeviceOps device;
  const auto cpu = testing::MakeBackward(kBf16);
  std::vector<float> dx = RandomFloats(12, 72, 1);
  const std::vector<int32_t> ids = {3, 1, 3, 3, 0, 1, 9, 9, 3, 2, 0, 3};
  std::vector<float> here = RandomFloats(10, 72, 2), there = here;
  device.backward().Embed(ids.data(), View(dx, 12), here.data());
  cpu->Embed(ids.data(), View(dx, 12), there.data());
  REQUIRE(SameBits(here, there));
  device.backward().AddRows(View(dx, 12), ids.data(), View(here, 10));
  cpu->AddRows(View(dx, 12), ids.data(), View(there, 10));
  REQUIRE(SameBits(here, there));
  REQUIRE(device.context().Synchronize().ok());
}

TEST_CASE("The gradient of a feed-forward block agrees with the CPU's", "[cuda][backward]") {
  constexpr int64_t kRows = 21, kInner = 96;
  const TestMatrix in = TestMatrix::Random(kBf16, kRows, kBackwardDim, 1);
  const TestMatrix weight = TestMatrix::Random(kBf16, 1, kBackwardDim, 2);
  const TestWeight up(kBf16, 2 * kInner, kBackwardDim, 3, 0.3f),
      down(kBf16, kBackwardDim, kInner, 4, 0.3f);
  struct Gradients {
    std::vector<float> dresidual = RandomFloats(kRows, kBackwardDim, 5),
                       norm = std::vector<float>(kBackwardDim);
    std::vector<float> up = std::vector<float>(2 * kInner * kBackwardDim);
    std::vector<float> down = std::vector<float>(kBackwardDim * kInner);
  };
  const auto run = [&](ForwardOps& forward, BackwardOps& backward, const LinearWeight& up_view,
                       const LinearWeight& down_view, Gradients& gradients) {
    TestMatrix norm(kBf16, kRows, kBackwardDim), wide(kBf16, kRows, 2 * kInner);
    TestMatrix inner(kBf16, kRows, kInner), dout(kBf16, kRows, kBackwardDim), dinner = inner;
    TestMatrix dwide = wide, dnorm = norm;
    forward.RmsNorm(in.view(), weight.data(), 1e-6f, norm.view());
    forward.Linear(norm.view(), up_view, wide.view());
    forward.SiluMul(wide.view(), inner.view());
    backward.Round(View(gradients.dresidual, kRows), dout.view());
    backward.LinearWeights(dout.view(), inner.view(), gradients.down.data(), nullptr);
    backward.LinearInput(dout.view(), down_view, dinner.view());
    backward.SiluMul(wide.view(), dinner.view(), dwide.view());
    backward.LinearWeights(dwide.view(), norm.view(), gradients.up.data(), nullptr);
    backward.LinearInput(dwide.view(), up_view, dnorm.view());
    backward.RmsNorm(in.view(), weight.data(), 1e-6f, dnorm.view(),
                     View(gradients.dresidual, kRows), gradients.norm.data());
  };
  Gradients here, there;
  DeviceOps device;
  run(device.forward(), device.backward(), RowMajor(up), RowMajor(down), here);
  REQUIRE(device.context().Synchronize().ok());
  const auto forward = testing::MakeForward(kBf16);
  const auto backward = testing::MakeBackward(kBf16);
  run(*forward, *backward, up.view(), down.view(), there);
  const auto distance = [](const std::vector<float>& a, const std::vector<float>& b) {
    return Distance(static_cast<int64_t>(a.size()), [&](int64_t i) {
      return std::pair(a[static_cast<size_t>(i)], b[static_cast<size_t>(i)]);
    });
  };
  // Sums in other orders, rounded to eight bits here and there.
  REQUIRE(distance(here.dresidual, there.dresidual) < 0x1p-8);
  REQUIRE(distance(here.norm, there.norm) < 0x1p-8);
  REQUIRE(distance(here.up, there.up) < 0x1p-8);
  REQUIRE(distance(here.down, there.down) < 0x1p-8);
}

}  // namespace tandem
