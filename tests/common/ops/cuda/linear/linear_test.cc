// CudaLinear with the kernels on the emulator, as the ops use it.
#include "common/ops/cuda/linear/linear.h"

#include <cmath>
#include <cstring>

#include <catch2/catch.hpp>

#include "tests/common/ops/cuda/linear/gemm_fixture.h"
#include "tests/emulator/emulated_cuda.h"
#include "tests/emulator/emulator.h"

namespace tandem {
namespace {

using testing::DeviceMatrix;

struct LinearBench {
  LinearBench() {
    context = CudaContext::Create(&cuda, 0).value();
    linear = CudaLinear::Create(context.get()).value();
  }
  emulator::EmulatedCuda cuda;
  std::unique_ptr<CudaContext> context;
  std::unique_ptr<CudaLinear> linear;
};

float Dot(const DeviceMatrix& a, int64_t row, const DeviceMatrix& b, int64_t other) {
  float sum = 0;
  for (int64_t k = 0; k < a.cols(); ++k) sum += a.At(row, k) * b.At(other, k);
  return sum;
}

TEST_CASE("On the emulator all products are our own kernels'", "[ops][cuda][linear]") {
  LinearBench bench;
  REQUIRE(bench.linear->numerics() == "own");
  REQUIRE(bench.linear->Choices().empty());
  using Use = LinearShape::Use;
  REQUIRE(
      bench.linear->Prepare({{.n = 64, .k = 32}, {.use = Use::kAddInput, .n = 64, .k = 32}}).ok());
  REQUIRE(bench.linear->Choices() == KernelChoices{{"linear [64 x 32]", "own kernels"},
                                                   {"input, added, [32 x 64]", "own kernels"}});
}

TEST_CASE("A row of Forward is the same among 1 to 70 rows, at any place, in any order",
          "[ops][cuda][linear]") {
  LinearBench bench;
  const int64_t rows = 70, n = 104, k = 120;
  const DeviceMatrix in = DeviceMatrix::Random(rows, k, 7, k + 8, NAN);
  const DeviceMatrix weight = DeviceMatrix::Random(n, k, 5);
  const DeviceMatrix bias = DeviceMatrix::Random(1, n, 3);
  const DeviceMatrix all(rows, n);
  bench.linear->Forward(in.view(), weight.weight(&bias), all.view());
  for (int64_t i = 0; i < rows; i += 23) {
    for (int64_t j = 0; j < n; ++j) {
      REQUIRE(all.At(i, j) ==
              Approx(Dot(in, i, weight, j) + bias.At(0, j)).margin(1e-4).epsilon(0.004));
    }
  }
  for (int64_t m = 1; m <= rows; ++m) {
    const int64_t first = m * 13 % (rows - m + 1);
    const DeviceMatrix part(m, n, n + 8);
    bench.linear->Forward(in.Rows(first, m), weight.weight(&bias), part.view());
    INFO(m << " rows from " << first);
    for (int64_t i = 0; i < m; ++i) REQUIRE(part.SameRow(i, all, first + i));
  }
  // The rows in another order.
  DeviceMatrix shuffled(rows, k);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t c = 0; c < k; ++c) shuffled.Set(i, c, in.At(i * 29 % rows, c));
  }
  const DeviceMatrix out(rows, n);
  bench.linear->Forward(shuffled.view(), weight.weight(&bias), out.view());
  for (int64_t i = 0; i < rows; ++i) REQUIRE(out.SameRow(i, all, i * 29 % rows));
}

TEST_CASE("Logits of a range of ids are those of the whole head", "[ops][cuda][linear]") {
  LinearBench bench;
  const DeviceMatrix hidden = DeviceMatrix::Random(19, 72, 7);
  const DeviceMatrix head = DeviceMatrix::Random(150, 72, 5);
  std::vector<float> all(19 * 152), part(19 * 64);
  bench.linear->Logits(hidden.view(), head.weight(), 0, 150, all.data(), 152);
  for (const int64_t first : {int64_t{0}, int64_t{64}, int64_t{86}}) {
    bench.linear->Logits(hidden.view(), head.weight(), first, 64, part.data(), 64);
    for (int64_t i = 0; i < 19; ++i) {
      REQUIRE(std::memcmp(part.data() + i * 64, all.data() + i * 152 + first, 64 * 4) == 0);
      REQUIRE(part[static_cast<size_t>(i * 64)] ==
              Approx(Dot(hidden, i, head, first)).margin(1e-4));
    }
  }
}

TEST_CASE("The gradient of a row's input is that row's own", "[ops][cuda][linear]") {
  LinearBench bench;
  const DeviceMatrix dout = DeviceMatrix::Random(45, 56, 7, 64);
  const DeviceMatrix weight = DeviceMatrix::Random(56, 72, 5);
  const DeviceMatrix all(45, 72);
  bench.linear->Input(dout.view(), weight.weight(), all.view());
  for (int64_t j = 0; j < 72; ++j) {
    float sum = 0;
    for (int64_t n = 0; n < 56; ++n) sum += dout.At(44, n) * weight.At(n, j);
    REQUIRE(all.At(44, j) == Approx(sum).margin(1e-4).epsilon(0.004));
  }
  for (const int64_t m : {1, 7, 16, 33}) {
    const DeviceMatrix part(m, 72);
    bench.linear->Input(dout.Rows(45 - m, m), weight.weight(), part.view());
    for (int64_t i = 0; i < m; ++i) REQUIRE(part.SameRow(i, all, 45 - m + i));
  }
}

TEST_CASE("Weight gradients accumulate, nearly the same however the rows are split",
          "[ops][cuda][linear]") {
  LinearBench bench;
  const int64_t rows = 96, n = 40, k = 72;
  const DeviceMatrix dout = DeviceMatrix::Random(rows, n, 7), in = DeviceMatrix::Random(rows, k, 5);
  struct Gradients {
    std::vector<float> weight, bias;
  };
  const auto run = [&](const std::vector<int64_t>& split) {
    Gradients sums{std::vector<float>(n * k), std::vector<float>(n)};
    int64_t first = 0;
    for (const int64_t count : split) {
      bench.linear->Weights(dout.Rows(first, count), in.Rows(first, count), sums.weight.data(),
                            sums.bias.data());
      first += count;
    }
    return sums;
  };
  const Gradients whole = run({rows}), again = run({rows}), parts = run({1, 31, 0, 64});
  REQUIRE(whole.weight == again.weight);
  REQUIRE(whole.bias == again.bias);
  const auto near = [](const std::vector<float>& a, const std::vector<float>& b) {
    float largest = 0, apart = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      largest = std::max(largest, std::fabs(a[i]));
      apart = std::max(apart, std::fabs(a[i] - b[i]));
    }
    return apart <= 1e-5f * largest;  // backward_ops.h
  };
  REQUIRE(near(whole.weight, parts.weight));
  REQUIRE(near(whole.bias, parts.bias));
  for (int64_t j = 0; j < k; j += 7) {
    float sum = 0;
    for (int64_t i = 0; i < rows; ++i) sum += dout.At(i, 3) * in.At(i, j);
    REQUIRE(whole.weight[static_cast<size_t>(3 * k + j)] == Approx(sum).margin(1e-4));
  }
}

TEST_CASE("Products in a graph are done again with the new numbers", "[ops][cuda][linear]") {
  LinearBench bench;
  const DeviceMatrix weight = DeviceMatrix::Random(24, 40, 5);
  DeviceMatrix in(3, 40);
  const DeviceMatrix out(3, 24), expected(3, 24);
  for (uint32_t step = 0; step < 4; ++step) {
    const DeviceMatrix numbers = DeviceMatrix::Random(3, 40, step);
    for (int64_t i = 0; i < 3; ++i) {
      for (int64_t c = 0; c < 40; ++c) in.Set(i, c, numbers.At(i, c));
    }
    const int64_t before = emulator::KernelsRun();
    bench.context->BeginGraph(7);
    bench.linear->Forward(in.view(), weight.weight(), out.view());
    REQUIRE(bench.context->EndGraph());
    REQUIRE(bench.context->Synchronize().ok());
    REQUIRE(emulator::KernelsRun() == before + 1);
    bench.linear->Forward(in.view(), weight.weight(), expected.view());
    for (int64_t i = 0; i < 3; ++i) REQUIRE(out.SameRow(i, expected, i));
  }
  REQUIRE(bench.context->graphs() == 1);
}

}  // namespace
}  // namespace tandem
