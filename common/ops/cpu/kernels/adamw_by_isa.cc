// The loops of common/ops/cpu/adamw.h in plain C++, for the compiler to vectorise. CMakeLists.txt
// compiles this file once for each instruction set, with its options, its name (TANDEM_ISA_NAME)
// and that of its table (TANDEM_ISA_TABLE). No operation is reordered or contracted, so all sets
// give the same bits.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include <xmmintrin.h>

#include "common/ops/cpu/kernels/kernel_set.h"

namespace tandem {
namespace {

// Elements processed between two rounds of prefetches: four cache lines of floats.
constexpr int64_t kStride = 64;
// Prefetch distance: six streams of memory would stall a core without prefetches well ahead.
constexpr int64_t kAhead = 1024;

inline void Prefetch(const void* at, int64_t bytes) {
  for (int64_t line = 0; line < bytes; line += 64) {
    _mm_prefetch(static_cast<const char*>(at) + line, _MM_HINT_T0);
  }
}

// The same result as ToBf16, inline and without branches.
inline Bf16 Round(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet_nan = (bits >> 16) | 0x40u;
  return static_cast<Bf16>((bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
}

inline int32_t RoundSome(const float* __restrict values, Bf16* __restrict rounded, int64_t count) {
  int32_t changed = 0;
  for (int64_t i = 0; i < count; ++i) {
    const Bf16 result = Round(values[i]);
    changed += result != rounded[i];
    rounded[i] = result;
  }
  return changed;
}

inline void UpdateSome(float* __restrict master,
                       const float* __restrict gradient,
                       float* __restrict exp_avg,
                       float* __restrict exp_avg_sq,
                       int64_t count,
                       const AdamWFactors& f) {
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * f.gradient_scale;
    const float m = exp_avg[i] + (g - exp_avg[i]) * f.weight1;
    const float v = exp_avg_sq[i] * f.beta2 + g * g * f.weight2;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    master[i] =
        master[i] * f.decay - f.step_size * (m / (std::sqrt(v) / f.sqrt_bias_correction2 + f.eps));
  }
}

int64_t Update(const AdamWArrays& arrays, const AdamWFactors& factors) {
  const AdamWFactors f = factors;
  int64_t changed = 0;
  for (int64_t i = 0; i < arrays.count; i += kStride) {
    const int64_t count = std::min(kStride, arrays.count - i);
    Prefetch(arrays.master + i + kAhead, kStride * 4);
    Prefetch(arrays.gradient + i + kAhead, kStride * 4);
    Prefetch(arrays.exp_avg + i + kAhead, kStride * 4);
    Prefetch(arrays.exp_avg_sq + i + kAhead, kStride * 4);
    UpdateSome(arrays.master + i, arrays.gradient + i, arrays.exp_avg + i, arrays.exp_avg_sq + i,
               count, f);
    if (arrays.rounded == nullptr) continue;
    Prefetch(arrays.rounded + i + kAhead, kStride * 2);
    changed += RoundSome(arrays.master + i, arrays.rounded + i, count);
  }
  return changed;
}

int64_t RoundAll(const float* values, Bf16* rounded, int64_t count) {
  int64_t changed = 0;
  for (int64_t i = 0; i < count; i += kStride) {
    Prefetch(values + i + kAhead, kStride * 4);
    Prefetch(rounded + i + kAhead, kStride * 2);
    changed += RoundSome(values + i, rounded + i, std::min(kStride, count - i));
  }
  return changed;
}

void LaneSquares(const float* values, int64_t count, double* sums) {
  for (int64_t begin = 0; begin < count; begin += kSquaresBlock, sums += 8) {
    const int64_t end = std::min(count, begin + kSquaresBlock);
    double lanes[8] = {};
    int64_t i = begin;
    for (; i + 8 <= end; i += 8) {
      if ((i - begin) % 16 == 0) Prefetch(values + i + kAhead, 64);
      for (int lane = 0; lane < 8; ++lane) {
        lanes[lane] += static_cast<double>(values[i + lane]) * values[i + lane];
      }
    }
    for (int lane = 0; i < end; ++i, ++lane) {
      lanes[lane] += static_cast<double>(values[i]) * values[i];
    }
    std::memcpy(sums, lanes, sizeof(lanes));
  }
}

}  // namespace

const AdamWKernels TANDEM_ISA_TABLE = {TANDEM_ISA_NAME, Update, RoundAll, LaneSquares};

}  // namespace tandem
