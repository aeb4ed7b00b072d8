#include <algorithm>
#include <cmath>
#include <vector>

#include <catch2/catch.hpp>

#include "trainer_worker/trained_weights/adapter_files.h"

namespace tandem {
namespace {

std::vector<float> Initial(uint64_t seed, int64_t tensor, int64_t in, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  InitialLoraA(seed, tensor, in, 0, count, values.data());
  return values;
}

TEST_CASE("A begins uniform between plus and minus one over the root of its width") {
  constexpr int64_t kIn = 400, kCount = 400 * 16;
  const double bound = 1.0 / 20;
  const std::vector<float> values = Initial(7, 3, kIn, kCount);
  double sum = 0, squares = 0;
  for (float value : values) {
    REQUIRE(std::abs(value) < bound);
    sum += value;
    squares += double{value} * value;
  }
  // Within five standard errors; the bounds are nearly reached.
  REQUIRE(std::abs(sum / kCount) < 5 * bound / std::sqrt(3.0 * kCount));
  REQUIRE(squares / kCount == Approx(bound * bound / 3).epsilon(0.06));
  REQUIRE(*std::max_element(values.begin(), values.end()) > 0.99 * bound);
  REQUIRE(*std::min_element(values.begin(), values.end()) < -0.99 * bound);
}

TEST_CASE("an element of A depends on seed, tensor and its place, not on who asks for it") {
  const std::vector<float> whole = Initial(7, 3, 24, 96);
  std::vector<float> part(96);
  for (int64_t first = 0; first < 96; first += 17) {
    InitialLoraA(7, 3, 24, first, std::min<int64_t>(17, 96 - first), part.data() + first);
  }
  REQUIRE(part == whole);
  REQUIRE(Initial(8, 3, 24, 96) != whole);
  REQUIRE(Initial(7, 4, 24, 96) != whole);
  REQUIRE(std::count(whole.begin(), whole.end(), whole[0]) == 1);
}

}  // namespace
}  // namespace tandem
