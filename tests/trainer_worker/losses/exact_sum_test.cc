#include "trainer_worker/losses/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

#include "common/base/philox.h"

namespace tandem {
namespace {

double SumOf(const std::vector<float>& values) {
  ExactSum sum;
  for (const float value : values) sum.Add(value);
  return sum.Value();
}

TEST_CASE("ExactSum loses nothing between the smallest and the largest float", "[losses]") {
  constexpr float kMost = std::numeric_limits<float>::max();
  constexpr float kLeast = std::numeric_limits<float>::denorm_min();
  REQUIRE(SumOf({}) == 0.0);
  REQUIRE(SumOf({0.0f, -0.0f}) == 0.0);
  for (const float value : {1.0f, -1.5f, 0.1f, kMost, -kLeast, std::numeric_limits<float>::min()}) {
    REQUIRE(SumOf({value}) == static_cast<double>(value));
  }
  REQUIRE(SumOf({kMost, kLeast, -kMost}) == static_cast<double>(kLeast));
  REQUIRE(SumOf({1e8f, 0.5f, -1e8f, 0.25f}) == 0.75);
}

TEST_CASE("ExactSum keeps the lowest bit of a float at every exponent", "[losses]") {
  // All 24 bits of the fraction are set, so that bits lie on both sides of every bin's boundary.
  const float fraction = std::ldexp(static_cast<float>((1 << 24) - 1), -24);
  for (int exponent = -125; exponent <= 128; ++exponent) {
    const float value = std::ldexp(fraction, exponent);
    INFO("exponent " << exponent);
    REQUIRE(SumOf({value}) == static_cast<double>(value));
    REQUIRE(SumOf({-value}) == -static_cast<double>(value));
  }
}

TEST_CASE("ExactSum has the same bits in any order and split", "[losses]") {
  std::vector<float> values;
  for (uint64_t i = 0; i < 500; ++i) {
    const auto words = RandomWords(5, 0, i);
    const float sign = words[1] % 2 == 0 ? 1.0f : -1.0f;
    values.push_back(sign *
                     std::ldexp(RandomUniform(5, 1, i), static_cast<int>(words[0] % 60) - 30));
  }
  const double want = SumOf(values);
  std::vector<float> reversed(values.rbegin(), values.rend());
  REQUIRE(SumOf(reversed) == want);
  for (const size_t split : {size_t{1}, size_t{123}, size_t{499}}) {
    ExactSum left, right;
    for (size_t i = 0; i < values.size(); ++i) (i < split ? left : right).Add(values[i]);
    for (size_t bin = 0; bin < left.bins().size(); ++bin) left.bins()[bin] += right.bins()[bin];
    REQUIRE(std::bit_cast<uint64_t>(left.Value()) == std::bit_cast<uint64_t>(want));
  }
}

}  // namespace
}  // namespace tandem
