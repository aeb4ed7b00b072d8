#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

#include "common/base/philox.h"
#include "common/ops/cpu/adamw.h"

namespace tandem {
namespace {

constexpr AdamWFactors kFactors = {.gradient_scale = 0.37f,
                                   .weight1 = 0.1f,
                                   .beta2 = 0.999f,
                                   .weight2 = 0.001f,
                                   .decay = 0.9999f,
                                   .step_size = 3e-4f,
                                   .sqrt_bias_correction2 = 0.03f,
                                   .eps = 1e-8f};

// Values of all sizes, denormals and zeros, and (early, elsewhere for every seed) what is no
// number.
std::vector<float> Values(int64_t count, uint64_t seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const float uniform = RandomUniform(seed, 0, static_cast<uint64_t>(i)) - 0.5f;
    values.push_back(std::ldexp(uniform, -static_cast<int>(i * 7 % 150)));
  }
  const float odd[] = {NAN, -INFINITY, std::numeric_limits<float>::max(), -0.0f, 1.00390625f};
  for (int64_t i = 0; i < 5; ++i) {
    const int64_t at = i * 11 + static_cast<int64_t>(seed);
    if (at < count) values[at] = odd[i];
  }
  return values;
}

struct State {
  State(int64_t count, uint64_t seed)
      : master(Values(count, seed)),
        exp_avg(Values(count, seed + 1)),
        exp_avg_sq(Values(count, seed + 2)),
        rounded(count, 0x7777) {
    for (float& v : exp_avg_sq) v = std::fabs(v);
  }
  AdamWArrays Arrays(const std::vector<float>& gradient, int64_t first, int64_t count) {
    return {master.data() + first,     gradient.data() + first, exp_avg.data() + first,
            exp_avg_sq.data() + first, rounded.data() + first,  count};
  }
  bool SameBits(const State& other) const {
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      // NaNs count by their bits; memcmp takes no null pointer, not even of nothing.
      return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
    };
    return same(master, other.master) && same(exp_avg, other.exp_avg) &&
           same(exp_avg_sq, other.exp_avg_sq) && rounded == other.rounded;
  }
  std::vector<float> master, exp_avg, exp_avg_sq;
  std::vector<Bf16> rounded;
};

// The formula of adamw.h, one element at a time.
int64_t PlainUpdate(const AdamWArrays& a, const AdamWFactors& f) {
  int64_t changed = 0;
  for (int64_t i = 0; i < a.count; ++i) {
    const float g = a.gradient[i] * f.gradient_scale;
    a.exp_avg[i] = a.exp_avg[i] + (g - a.exp_avg[i]) * f.weight1;
    a.exp_avg_sq[i] = a.exp_avg_sq[i] * f.beta2 + g * g * f.weight2;
    a.master[i] = a.master[i] * f.decay -
                  f.step_size * (a.exp_avg[i] /
                                 (std::sqrt(a.exp_avg_sq[i]) / f.sqrt_bias_correction2 + f.eps));
    const Bf16 rounded = ToBf16(a.master[i]);
    changed += rounded != a.rounded[i];
    a.rounded[i] = rounded;
  }
  return changed;
}

double PlainSumOfSquares(const std::vector<float>& values, int64_t first, int64_t count) {
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += kSquaresBlock) {
    double lanes[8] = {};
    for (int64_t i = begin; i < std::min(count, begin + kSquaresBlock); ++i) {
      lanes[(i - begin) % 8] += static_cast<double>(values[first + i]) * values[first + i];
    }
    for (const double lane : lanes) total += lane;
  }
  return total;
}

}  // namespace

TEST_CASE("every instruction set gives the bits of AdamW's formula at every length and offset",
          "[ops][adamw]") {
  for (const AdamWKernels* kernels : RunnableAdamWKernels()) {
    INFO(kernels->name);
    for (const int64_t count : {0, 1, 3, 7, 15, 16, 17, 63, 64, 65, 127, 200, 1000}) {
      for (const int64_t first : {0, 1, 5, 16}) {
        const std::vector<float> gradient = Values(first + count, 9);
        State plain(first + count, 1), vector(first + count, 1);
        for (int step = 0; step < 3; ++step) {
          const int64_t changed = PlainUpdate(plain.Arrays(gradient, first, count), kFactors);
          REQUIRE(kernels->update(vector.Arrays(gradient, first, count), kFactors) == changed);
          REQUIRE(vector.SameBits(plain));
        }
      }
    }
  }
}

TEST_CASE("AdamW over many tasks keeps denormals and counts what changed", "[ops][adamw]") {
  const int64_t count = (3 << 18) + 77;
  const std::vector<float> gradient = Values(count, 9);
  State plain(count, 1);
  const int64_t changed = PlainUpdate(plain.Arrays(gradient, 0, count), kFactors);
  for (const int threads : {1, 2}) {
    ThreadPool pool(threads);
    State tasks(count, 1);
    REQUIRE(AdamWUpdate(pool, tasks.Arrays(gradient, 0, count), kFactors) == changed);
    REQUIRE(tasks.SameBits(plain));
  }
}

TEST_CASE("every instruction set rounds as ToBf16 and counts the changes", "[ops][adamw]") {
  const std::vector<float> values = Values(5000, 3);
  for (const AdamWKernels* kernels : RunnableAdamWKernels()) {
    INFO(kernels->name);
    std::vector<Bf16> rounded(values.size(), 0x7777);
    REQUIRE(kernels->round(values.data() + 1, rounded.data() + 1, 4999) == 4999);
    for (size_t i = 1; i < values.size(); ++i) REQUIRE(rounded[i] == ToBf16(values[i]));
    REQUIRE(rounded[0] == 0x7777);
    REQUIRE(kernels->round(values.data() + 1, rounded.data() + 1, 4999) == 0);
    rounded[10] ^= 1;
    REQUIRE(kernels->round(values.data() + 1, rounded.data() + 1, 4999) == 1);
  }
}

TEST_CASE("the sum of squares has one order for every instruction set and thread count",
          "[ops][adamw]") {
  std::vector<float> values = Values(700001, 3);
  for (float& value : values) value = std::isfinite(value) ? std::fmod(value, 8.0f) : 1.0f;
  for (const int64_t count : {0, 1, 7, 8, 9, 4095, 4096, 4097, 10000, 700000}) {
    for (const int64_t first : {0, 1}) {
      const double expected = PlainSumOfSquares(values, first, count);
      for (const AdamWKernels* kernels : RunnableAdamWKernels()) {
        std::vector<double> sums((count + kSquaresBlock - 1) / kSquaresBlock * 8);
        kernels->lane_squares(values.data() + first, count, sums.data());
        double total = 0;
        for (const double sum : sums) total += sum;
        REQUIRE(total == expected);
      }
      for (const int threads : {1, 2}) {
        ThreadPool pool(threads);
        REQUIRE(SumOfSquares(pool, values.data() + first, count) == expected);
      }
    }
  }
}

}  // namespace tandem
