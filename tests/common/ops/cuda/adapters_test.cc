// Products with adapters beside their weights on a GPU: the documented sums, bit for bit on the
// emulator; rows that do not depend on their batch; gradients.
#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include <catch2/catch.hpp>

#include "tests/common/ops/cuda/adapted_weight.h"
#include "tests/common/ops/ops_fixture.h"
#include "tests/emulator/emulated_cuda.h"

namespace tandem {
namespace {
using testing::AdaptedSums;
using testing::AdaptedWeight;
using testing::AddedNormal;
using testing::DeviceOps;
using testing::Gather;
using testing::kBf16;
using testing::TestMatrix;

struct AdaptedShape {
  int64_t m, n, k, rank;
};
// Ranks of one tile, of several and of none that is whole; more columns than one turn of a block.
constexpr AdaptedShape kShapes[] = {{3, 48, 32, 1},   {13, 72, 40, 3},   {70, 160, 72, 8},
                                    {1, 48, 8, 4},    {40, 96, 128, 16}, {17, 168, 576, 33},
                                    {33, 600, 48, 20}};

// Each with both seeds.
template <typename Body>
void ForShapes(const Body& body) {
  for (const AdaptedShape& shape : kShapes) {
    for (const uint64_t seed : testing::TwoSeeds()) {
      const testing::ScopedSeed scoped(seed);
      INFO(shape.m << " x " << shape.n << " x " << shape.k << ", rank " << shape.rank);
      body(shape, AdaptedWeight(shape.n, shape.k, shape.rank, shape.m % 3 == 1,
                                /*hole=*/shape.m % 2 == 0));
    }
  }
}

}  // namespace

TEST_CASE("A GPU's Linear with adapters is the documented sums on top of the base's",
          "[cuda][ops][adapter]") {
  ForShapes([](const AdaptedShape& shape, const AdaptedWeight& adapted) {
    DeviceOps device;
    const TestMatrix in = TestMatrix::Random(kBf16, shape.m, shape.k, 1);
    TestMatrix base(kBf16, shape.m, shape.n), out = base;
    device.forward().Linear(in.view(), adapted.base(), base.view());
    device.forward().Linear(in.view(), adapted.rows(), out.view());
    REQUIRE(device.context().Synchronize().ok());
    REQUIRE(device.forward().counts().Text().find("linear 2 (") != std::string::npos);
    const std::vector<float> t = testing::PlainRankRows(adapted, in, 1.0f);
    bool same = true;
    for (int64_t i = 0; i < shape.m; ++i) {
      for (int64_t j = 0; j < shape.n; ++j) {
        const int part = adapted.PartOf(j);
        float chain = 0;
        for (int64_t k = 0; part >= 0 && k < shape.rank; ++k) {
          const float of_row = t[static_cast<size_t>((i * 3 + part) * shape.rank + k)];
          chain = std::fma(of_row, adapted.b.source.At(j, k), chain);
        }
        same = same && out.At(i, j) == AddedNormal(base.At(i, j), chain * adapted.scaling);
      }
    }
    REQUIRE(same);
  });
}

TEST_CASE("A GPU's gradient of the input of adapters is the documented sums on top of the base's",
          "[cuda][ops][adapter]") {
  ForShapes([](const AdaptedShape& shape, const AdaptedWeight& adapted) {
    DeviceOps device;
    const TestMatrix dout = TestMatrix::Random(kBf16, shape.m, shape.n, 2);
    TestMatrix base(kBf16, shape.m, shape.k), din = base;
    device.backward().LinearInput(dout.view(), adapted.base(), base.view());
    device.backward().LinearInput(dout.view(), adapted.rows(), din.view());
    REQUIRE(device.context().Synchronize().ok());
    const std::vector<float> dt = testing::PlainRankGradients(adapted, dout);
    bool same = true;
    for (int64_t i = 0; i < shape.m; ++i) {
      for (int64_t j = 0; j < shape.k; ++j) {
        float chain = 0;
        for (int64_t k = 0; k < 3 * shape.rank; ++k) {
          if (adapted.parts[static_cast<size_t>(k / shape.rank)].rows == 0) continue;
          const float of_row = dt[static_cast<size_t>(i * 3 * shape.rank + k)];
          chain = std::fma(of_row, adapted.a.source.At(k, j), chain);
        }
        same = same && din.At(i, j) == AddedNormal(base.At(i, j), chain);
      }
    }
    REQUIRE(same);
  });
}

TEST_CASE("A GPU's gradients of adapters are one chain over the rows", "[cuda][ops][adapter]") {
  ForShapes([](const AdaptedShape& shape, const AdaptedWeight& adapted) {
    DeviceOps device;
    const TestMatrix in = TestMatrix::Random(kBf16, shape.m, shape.k, 1);
    const TestMatrix dout = TestMatrix::Random(kBf16, shape.m, shape.n, 2);
    AdaptedSums sums(adapted, 0.5f);
    device.backward().AdapterWeights(dout.view(), in.view(), adapted.rows(), sums.gradients);
    REQUIRE(device.context().Synchronize().ok());
    const std::vector<float> t = testing::PlainRankRows(adapted, in, adapted.scaling);
    const std::vector<float> dt = testing::PlainRankGradients(adapted, dout);
    // Over the rows of column `col` of `wide` and value k of `narrow`.
    const auto chain = [&](const TestMatrix& wide, int64_t col, const std::vector<float>& narrow,
                           int64_t k) {
      float sum = 0.5f;
      for (int64_t row = 0; row < shape.m; ++row) {
        sum =
            std::fma(wide.At(row, col), narrow[static_cast<size_t>(row * 3 * shape.rank + k)], sum);
      }
      return sum;
    };
    bool same = true;
    for (int64_t i = 0; i < 3; ++i) {
      const auto part = static_cast<size_t>(i);
      if (adapted.parts[part].rows == 0) continue;
      for (int64_t k = 0; k < shape.rank; ++k) {
        for (int64_t j = 0; j < shape.k; ++j) {
          same = same && sums.a[part][static_cast<size_t>(k * shape.k + j)] ==
                             chain(in, j, dt, i * shape.rank + k);
        }
        for (int64_t row = 0; row < adapted.parts[part].rows; ++row) {
          same = same && sums.b[part][static_cast<size_t>(row * shape.rank + k)] ==
                             chain(dout, adapted.parts[part].row + row, t, i * shape.rank + k);
        }
      }
    }
    REQUIRE(same);
  });
}

TEST_CASE("A GPU's adapters agree with the CPU's", "[cuda][ops][adapter]") {
  constexpr int64_t kRows = 37, kOut = 136, kIn = 96, kRank = 12;
  const AdaptedWeight adapted(kOut, kIn, kRank, true);
  DeviceOps device;
  const auto forward = testing::MakeForward(kBf16);
  const auto backward = testing::MakeBackward(kBf16);
  const TestMatrix in = TestMatrix::Random(kBf16, kRows, kIn, 1);
  const TestMatrix dout = TestMatrix::Random(kBf16, kRows, kOut, 2);
  TestMatrix out(kBf16, kRows, kOut), on_cpu = out, din(kBf16, kRows, kIn), din_on_cpu = din;
  AdaptedSums sums(adapted), cpu_sums(adapted);
  device.forward().Linear(in.view(), adapted.rows(), out.view());
  device.backward().LinearInput(dout.view(), adapted.rows(), din.view());
  device.backward().AdapterWeights(dout.view(), in.view(), adapted.rows(), sums.gradients);
  REQUIRE(device.context().Synchronize().ok());
  forward->Linear(in.view(), adapted.panels(), on_cpu.view());
  backward->LinearInput(dout.view(), adapted.panels(), din_on_cpu.view());
  backward->AdapterWeights(dout.view(), in.view(), adapted.panels(), cpu_sums.gradients);
  for (int64_t i = 0; i < kRows; ++i) {
    // Two roundings to eight bits here, one there.
    for (int64_t j = 0; j < kOut; ++j) {
      REQUIRE(out.At(i, j) == Approx(on_cpu.At(i, j)).epsilon(0.01).margin(0.02));
    }
    for (int64_t j = 0; j < kIn; ++j) {
      REQUIRE(din.At(i, j) == Approx(din_on_cpu.At(i, j)).epsilon(0.01).margin(0.02));
    }
  }
  for (size_t part = 0; part < 3; ++part) {
    for (size_t i = 0; i < sums.a[part].size(); ++i) {
      REQUIRE(sums.a[part][i] == Approx(cpu_sums.a[part][i]).epsilon(1e-4).margin(1e-4));
    }
    for (size_t i = 0; i < sums.b[part].size(); ++i) {
      REQUIRE(sums.b[part][i] == Approx(cpu_sums.b[part][i]).epsilon(1e-4).margin(1e-4));
    }
  }
}

TEST_CASE("A row of a GPU's product with adapters does not depend on its batch",
          "[cuda][ops][adapter]") {
  constexpr int64_t kRows = 70;
  DeviceOps device;
  const AdaptedWeight adapted(168, 72, 9, true);
  const TestMatrix in = TestMatrix::Random(kBf16, kRows, 72, 1, 2.0f);
  const TestMatrix dout = TestMatrix::Random(kBf16, kRows, 168, 2);
  TestMatrix full(kBf16, kRows, 168), dfull(kBf16, kRows, 72);
  device.forward().Linear(in.view(), adapted.rows(), full.view());
  device.backward().LinearInput(dout.view(), adapted.rows(), dfull.view());
  std::mt19937 random(3);
  for (const int64_t m : {1, 2, 8, 15, 16, 17, 31, 32, 33, 64, 70}) {
    std::vector<int64_t> rows(kRows);
    std::iota(rows.begin(), rows.end(), 0);
    std::shuffle(rows.begin(), rows.end(), random);
    rows.resize(static_cast<size_t>(m));
    TestMatrix out(kBf16, m, 168), din(kBf16, m, 72);
    const TestMatrix part = Gather(in, rows), dpart = Gather(dout, rows);
    device.forward().Linear(part.view(), adapted.rows(), out.view());
    device.backward().LinearInput(dpart.view(), adapted.rows(), din.view());
    REQUIRE(device.context().Synchronize().ok());
    INFO(m << " rows");
    for (int64_t i = 0; i < m; ++i) {
      REQUIRE(out.SameRow(i, full, rows[static_cast<size_t>(i)]));
      REQUIRE(din.SameRow(i, dfull, rows[static_cast<size_t>(i)]));
    }
  }
}

TEST_CASE("Gradients of a GPU's adapters keep their bits when a batch is cut",
          "[cuda][ops][adapter]") {
  constexpr int64_t kRows = 139;
  DeviceOps device;
  const AdaptedWeight adapted(88, 72, 9);
  const TestMatrix in = TestMatrix::Random(kBf16, kRows, 72, 1, 2.0f);
  const TestMatrix dout = TestMatrix::Random(kBf16, kRows, 88, 2);
  AdaptedSums whole(adapted);
  device.backward().AdapterWeights(dout.view(), in.view(), adapted.rows(), whole.gradients);
  for (const int64_t cut : {int64_t{0}, int64_t{1}, int64_t{64}, int64_t{77}}) {
    AdaptedSums sums(adapted);
    for (const auto& [first, last] : {std::pair(int64_t{0}, cut), {cut, kRows}}) {
      device.backward().AdapterWeights(dout.Rows(first, last - first), in.Rows(first, last - first),
                                       adapted.rows(), sums.gradients);
    }
    REQUIRE(device.context().Synchronize().ok());
    INFO("cut at " << cut);
    REQUIRE(sums.a == whole.a);
    REQUIRE(sums.b == whole.b);
  }
}

TEST_CASE("On a GPU adapters whose B is zero change no bit, and one that is not a number shows",
          "[cuda][ops][adapter]") {
  constexpr int64_t kRows = 19, kOut = 72, kIn = 40;
  DeviceOps device;
  AdaptedWeight adapted(kOut, kIn, 4);
  for (int64_t row = 0; row < kOut; ++row) {
    for (int64_t k = 0; k < 4; ++k) adapted.b.source.Set(row, k, 0.0f);
    // A sum that is rounded to minus zero stays so.
    for (int64_t k = 0; row == 3 && k < kIn; ++k) adapted.weight.source.Set(row, k, -0x1p-70f);
  }
  TestMatrix in = TestMatrix::Random(kBf16, kRows, kIn, 1);
  for (int64_t k = 0; k < kIn; ++k) in.Set(5, k, 0x1p-70f);
  const TestMatrix dout = TestMatrix::Random(kBf16, kRows, kOut, 2);
  TestMatrix with(kBf16, kRows, kOut), without = with, dwith(kBf16, kRows, kIn), dwithout = dwith;
  device.forward().Linear(in.view(), adapted.rows(), with.view());
  device.forward().Linear(in.view(), adapted.base(), without.view());
  device.backward().LinearInput(dout.view(), adapted.rows(), dwith.view());
  device.backward().LinearInput(dout.view(), adapted.base(), dwithout.view());
  REQUIRE(device.context().Synchronize().ok());
  REQUIRE(std::signbit(without.At(5, 3)));
  REQUIRE(with.SameBits(without));
  REQUIRE(dwith.SameBits(dwithout));

  adapted.b.source.Set(9, 2, std::numeric_limits<float>::quiet_NaN());
  device.forward().Linear(in.view(), adapted.rows(), with.view());
  REQUIRE(device.context().Synchronize().ok());
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t col = 0; col < kOut; ++col) {
      REQUIRE(std::isnan(with.At(row, col)) == (col == 9));
    }
  }
}

TEST_CASE("The first rows of a GPU's weight with adapters are computed alone with the same bits",
          "[cuda][ops][adapter]") {
  DeviceOps device;
  const AdaptedWeight adapted(96, 40, 5);
  const TestMatrix in = TestMatrix::Random(kBf16, 7, 40, 1);
  TestMatrix whole(kBf16, 7, 96), first(kBf16, 7, 64);
  device.forward().Linear(in.view(), adapted.rows(), whole.view());
  LinearWeight weight = adapted.rows();
  weight.rows = 64;  // in the second part
  device.forward().Linear(in.view(), weight, first.view());
  REQUIRE(device.context().Synchronize().ok());
  for (int64_t row = 0; row < 7; ++row) {
    for (int64_t col = 0; col < 64; ++col) REQUIRE(first.At(row, col) == whole.At(row, col));
  }
}

TEST_CASE("A step with adapters is a graph that reads what they are by then",
          "[cuda][ops][adapter]") {
  constexpr int64_t kRows = 5;
  DeviceOps device, apart;
  AdaptedWeight adapted(72, 40, 4);
  const std::vector<AttentionSpan> spans(kRows, AttentionSpan{.rows = 1});
  TestMatrix in(kBf16, kRows, 40), out(kBf16, kRows, 72), want(kBf16, kRows, 72);
  for (uint32_t step = 0; step < 5; ++step) {
    const TestMatrix fresh = TestMatrix::Random(kBf16, kRows, 40, step);
    for (int64_t i = 0; i < kRows * 40; ++i) in.Set(i / 40, i % 40, fresh.At(i / 40, i % 40));
    adapted.b.source.Set(0, 0, 0.1f * static_cast<float>(step));
    device.forward().BeginStep(spans);
    device.forward().Linear(in.view(), adapted.rows(), out.view());
    if (!device.forward().EndStep()) device.forward().Linear(in.view(), adapted.rows(), out.view());
    REQUIRE(device.context().Synchronize().ok());
    apart.forward().Linear(in.view(), adapted.rows(), want.view());
    REQUIRE(apart.context().Synchronize().ok());
    INFO("step " << step);
    REQUIRE(out.SameBits(want));
  }
  const std::vector<std::string> calls = device.cuda().calls();
  REQUIRE(std::count(calls.begin(), calls.end(), "LaunchGraph") == 4);
}

TEST_CASE("No memory for a GPU's adapters is the step's error, and the next step goes on",
          "[cuda][ops][adapter]") {
  const AdaptedWeight adapted(72, 40, 4);
  const TestMatrix in = TestMatrix::Random(kBf16, 3, 40, 1),
                   dout = TestMatrix::Random(kBf16, 3, 72, 2);
  for (int skipped = 0; skipped < 2; ++skipped) {
    DeviceOps device;
    AdaptedSums sums(adapted), again(adapted);
    device.cuda().FailCall("Malloc", absl::ResourceExhaustedError("full"), skipped);
    device.backward().AdapterWeights(dout.view(), in.view(), adapted.rows(), sums.gradients);
    REQUIRE(absl::IsResourceExhausted(device.context().Synchronize()));
    REQUIRE(sums.a == again.a);
    device.backward().AdapterWeights(dout.view(), in.view(), adapted.rows(), sums.gradients);
    REQUIRE(device.context().Synchronize().ok());
    REQUIRE(sums.a != again.a);
  }
}

}  // namespace tandem
