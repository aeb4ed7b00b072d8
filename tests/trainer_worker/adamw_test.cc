#include "trainer_worker/adamw.h"

#include <cmath>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

#include "common/base/philox.h"

namespace tandem {
namespace {

std::vector<float> Random(int64_t count, uint64_t seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(RandomUniform(seed, 0, static_cast<uint64_t>(i)) - 0.5f);
  }
  return values;
}

TEST_CASE("AdamW gives the same bits however the tensor is cut", "[adamw]") {
  constexpr int64_t kCount = 1003;
  const std::vector<float> gradient = Random(kCount, 2);
  std::vector<float> whole = Random(kCount, 1), m(kCount), v(kCount);
  std::vector<float> cut = whole, cut_m(kCount), cut_v(kCount);
  for (int64_t step = 1; step <= 3; ++step) {
    AdamWStep({whole.data(), gradient.data(), m.data(), v.data(), kCount}, {}, 1e-3, step, 0.5f);
    for (int64_t begin = 0; begin < kCount; begin += 17) {
      AdamWStep({cut.data() + begin, gradient.data() + begin, cut_m.data() + begin,
                 cut_v.data() + begin, std::min<int64_t>(17, kCount - begin)},
                {}, 1e-3, step, 0.5f);
    }
  }
  REQUIRE(whole == cut);
  REQUIRE(m == cut_m);
  REQUIRE(v == cut_v);
}

TEST_CASE("A learning rate of 0 leaves every bit of the master", "[adamw]") {
  std::vector<float> master = Random(100, 1), m(100), v(100);
  const std::vector<float> before = master, gradient = Random(100, 2);
  AdamWStep({master.data(), gradient.data(), m.data(), v.data(), 100}, {}, 0.0, 1, 1.0f);
  REQUIRE(master == before);
}

TEST_CASE("Rounding to bf16 equals ToBf16 and counts the changes", "[adamw]") {
  std::vector<float> values = Random(5000, 3);
  values[0] = std::numeric_limits<float>::quiet_NaN();
  values[1] = std::numeric_limits<float>::infinity();
  values[2] = 1.00390625f;  // halfway between two bf16
  values[3] = std::numeric_limits<float>::max();
  std::vector<Bf16> copy(values.size(), 0x7777);
  REQUIRE(RoundToBf16(values.data(), copy.data(), 5000) == 5000);
  for (size_t i = 0; i < values.size(); ++i) REQUIRE(copy[i] == ToBf16(values[i]));
  REQUIRE(RoundToBf16(values.data(), copy.data(), 5000) == 0);
  values[10] *= 2;
  REQUIRE(RoundToBf16(values.data(), copy.data(), 5000) == 1);
}

TEST_CASE("The sum of squares is exact for small integers at any length", "[adamw]") {
  for (const int64_t count : {0, 1, 7, 8, 9, 4095, 4096, 4097, 10000}) {
    const std::vector<float> values(static_cast<size_t>(count), 3.0f);
    REQUIRE(SumOfSquares(values.data(), count) == 9.0 * static_cast<double>(count));
  }
}

TEST_CASE("Clipping never enlarges gradients", "[adamw]") {
  REQUIRE(ClipFactor(0.5, 1.0) == 1.0f);
  REQUIRE(ClipFactor(2.0, 1.0) == Approx(0.5));
}

}  // namespace
}  // namespace tandem
