#include "trainer_worker/adamw.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tandem {
namespace {

// Inline and without branches so that the loop vectorizes; the same result as ToBf16.
inline Bf16 Round(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet_nan = (bits >> 16) | 0x40u;
  return static_cast<Bf16>((bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
}

constexpr int64_t kBlock = 4096;

}  // namespace

void AdamWStep(const AdamWArrays& arrays,
               const AdamWOptions& options,
               double lr,
               int64_t step,
               float gradient_scale) {
  const double correction1 = 1 - std::pow(options.beta1, static_cast<double>(step));
  const double correction2 = 1 - std::pow(options.beta2, static_cast<double>(step));
  const float decay = static_cast<float>(1 - lr * options.weight_decay);
  const float weight1 = static_cast<float>(1 - options.beta1);
  const float beta2 = static_cast<float>(options.beta2);
  const float weight2 = static_cast<float>(1 - options.beta2);
  const float root2 = static_cast<float>(std::sqrt(correction2));
  const float eps = static_cast<float>(options.eps);
  const float step_size = static_cast<float>(lr / correction1);
  float* __restrict master = arrays.master;
  const float* __restrict gradient = arrays.gradient;
  float* __restrict exp_avg = arrays.exp_avg;
  float* __restrict exp_avg_sq = arrays.exp_avg_sq;
  for (int64_t i = 0; i < arrays.count; ++i) {
    const float g = gradient[i] * gradient_scale;
    const float m = exp_avg[i] + (g - exp_avg[i]) * weight1;
    const float v = exp_avg_sq[i] * beta2 + g * g * weight2;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    master[i] = master[i] * decay - step_size * (m / (std::sqrt(v) / root2 + eps));
  }
}

double SumOfSquares(const float* values, int64_t count) {
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(count, begin + kBlock);
    // Eight running sums: the order is part of the result, so it is written out.
    double sums[8] = {};
    int64_t i = begin;
    for (; i + 8 <= end; i += 8) {
      for (int lane = 0; lane < 8; ++lane) {
        sums[lane] += static_cast<double>(values[i + lane]) * values[i + lane];
      }
    }
    for (int lane = 0; i < end; ++i, ++lane)
      sums[lane] += static_cast<double>(values[i]) * values[i];
    for (double sum : sums) total += sum;
  }
  return total;
}

float ClipFactor(double norm, double max_norm) {
  return std::min(1.0f, static_cast<float>(max_norm) / (static_cast<float>(norm) + 1e-6f));
}

int64_t RoundToBf16(const float* master, Bf16* copy, int64_t count) {
  int64_t changed = 0;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(count, begin + kBlock);
    int32_t here = 0;
    for (int64_t i = begin; i < end; ++i) {
      const Bf16 rounded = Round(master[i]);
      here += rounded != copy[i];
      copy[i] = rounded;
    }
    changed += here;
  }
  return changed;
}

}  // namespace tandem
