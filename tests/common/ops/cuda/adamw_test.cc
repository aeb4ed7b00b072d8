#include "common/ops/cuda/rows/adamw.h"

#include <cmath>
#include <random>

#include <catch2/catch.hpp>

#include "common/ops/cpu/adamw.h"
#include "tests/common/ops/cuda/kernel_fixture.h"

namespace tandem {
namespace {
using testing::SameBits;

// Of several magnitudes, denormals and zeros among them.
std::vector<float> RandomNumbers(size_t count, uint32_t seed, bool positive = false) {
  std::mt19937 random(seed);
  std::vector<float> numbers(count);
  for (size_t i = 0; i < count; ++i) {
    const float unit = static_cast<float>(random() % 20001) / 10000.0f - 1.0f;
    const float scale = i % 7 == 0 ? 1e-39f : i % 5 == 0 ? 1e-12f : 1.0f;
    numbers[i] = (positive ? std::fabs(unit) : unit) * scale;
  }
  return numbers;
}

constexpr AdamWFactors kFactors = {.gradient_scale = 0.37f,
                                   .weight1 = 0.1f,
                                   .beta2 = 0.999f,
                                   .weight2 = 0.001f,
                                   .decay = 0.9999f,
                                   .step_size = 3e-3f,
                                   .sqrt_bias_correction2 = 0.0447f,
                                   .eps = 1e-8f};
struct Shard {
  explicit Shard(size_t count)
      : master(RandomNumbers(count, 2)),
        m(RandomNumbers(count, 3)),
        v(RandomNumbers(count, 4, true)),
        rounded(count, 1) {}
  std::vector<float> master, m, v;
  std::vector<Bf16> rounded;
};
}  // namespace

TEST_CASE("AdamW on a device has the bits of the CPU's loops", "[cuda][adamw]") {
  ThreadPool pool(1);
  for (const size_t count : {size_t{1}, size_t{1023}, size_t{5000}}) {
    const auto elements = static_cast<int64_t>(count);
    const std::vector<float> gradient = RandomNumbers(count, 1);
    Shard here(count), there(count);
    uint64_t changed = 5;
    for (int step = 0; step < 3; ++step) {
      const int64_t changed_there =
          AdamWUpdate(pool,
                      {there.master.data(), gradient.data(), there.m.data(), there.v.data(),
                       there.rounded.data(), elements},
                      kFactors);
      const uint64_t before = changed;
      LaunchAdamW(nullptr,
                  {here.master.data(), gradient.data(), here.m.data(), here.v.data(),
                   here.rounded.data(), elements},
                  kFactors, &changed);
      REQUIRE(changed - before == static_cast<uint64_t>(changed_there));
      REQUIRE(SameBits(here.master, there.master));
      REQUIRE(SameBits(here.m, there.m));
      REQUIRE(SameBits(here.v, there.v));
      REQUIRE(SameBits(here.rounded, there.rounded));
    }
  }
}

TEST_CASE("Arrays are rounded and counted elementwise", "[cuda][adamw]") {
  std::vector<float> values = RandomNumbers(2500, 1);
  values[3] = std::nanf("");
  values[4] = -INFINITY;
  std::vector<Bf16> rounded(values.size(), 0), there(values.size(), 0);
  ThreadPool pool(1);
  const int64_t expected = RoundToBf16(pool, values.data(), there.data(), 2500);
  uint64_t changed = 0;
  LaunchRoundArray(nullptr, values.data(), rounded.data(), 2500, &changed);
  REQUIRE(SameBits(rounded, there));
  REQUIRE(changed == static_cast<uint64_t>(expected));
  LaunchRoundArray(nullptr, values.data(), rounded.data(), 2500, &changed);
  REQUIRE(changed == static_cast<uint64_t>(expected));
  rounded.assign(values.size(), 1);
  LaunchRoundArray(nullptr, values.data(), rounded.data(), 2500, nullptr);
  REQUIRE(SameBits(rounded, there));
}

TEST_CASE("Squares are summed in an order that the count alone decides", "[cuda][adamw]") {
  ThreadPool pool(1);
  // The last is more than one group.
  for (const int64_t count : {1, 4097, 140000}) {
    const std::vector<float> values = RandomNumbers(static_cast<size_t>(count), 1);
    const auto sum = [&] {
      std::vector<double> lanes(static_cast<size_t>(SquareLanes(count)));
      std::vector<double> groups(static_cast<size_t>(SquareGroups(count)));
      LaunchSumOfSquares(nullptr, values.data(), count, lanes.data(), groups.data());
      double total = 0;
      for (const double group : groups) total += group;
      return total;
    };
    const double forward = sum();
    const testing::ScopedSeed seed(testing::OtherSeed());
    REQUIRE(sum() == forward);
    REQUIRE(forward == Approx(SumOfSquares(pool, values.data(), count)).epsilon(1e-14));
  }
}

}  // namespace tandem
