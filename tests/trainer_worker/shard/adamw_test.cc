#include "common/ops/cpu/adamw.h"

#include <cmath>
#include <vector>

#include <catch2/catch.hpp>

#include "common/base/philox.h"
#include "trainer_worker/shard/optimizer.h"

namespace tandem {
namespace {

std::vector<float> Random(int64_t count, uint64_t seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(RandomUniform(seed, 0, static_cast<uint64_t>(i)) - 0.5f);
  }
  return values;
}

TEST_CASE("A learning rate of 0 leaves every bit of the master", "[adamw]") {
  std::vector<float> master = Random(100, 1), m(100), v(100);
  const std::vector<float> before = master, gradient = Random(100, 2);
  ThreadPool pool(1);
  AdamWUpdate(pool,
              {.master = master.data(),
               .gradient = gradient.data(),
               .exp_avg = m.data(),
               .exp_avg_sq = v.data(),
               .count = 100},
              FactorsOf({}, 0.0, 1, 1.0f));
  REQUIRE(master == before);
}

TEST_CASE("Clipping never enlarges gradients", "[adamw]") {
  REQUIRE(ClipFactor(0.5, 1.0) == 1.0f);
  REQUIRE(ClipFactor(2.0, 1.0) == Approx(0.5));
}

}  // namespace
}  // namespace tandem
