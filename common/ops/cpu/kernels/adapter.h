// What a separate adapter adds to a tile of sums (AdapterSums). Every GEMM runs the same code, so
// no bit depends on how rows and panels are divided.
#pragma once

#include "common/ops/cpu/kernels/kernel_set.h"
#include "common/ops/cpu/kernels/vec_elements.h"

namespace tandem {
namespace {

// The rows and 16-column panels of C to which a tile [rows][panels][16] of sums belongs.
struct TileRange {
  int64_t row, rows, panel, panels;
};

// Computes kRows chains over a part's rank, for the 16 columns of a panel of B.
template <typename T, int kRows>
TANDEM_INLINE void RankChains(const AdapterSums& adapters,
                              const float* t,
                              const std::byte* b,
                              F32x16* chains) {
  constexpr int64_t kPerWord = 4 / sizeof(T);
  for (int m = 0; m < kRows; ++m) chains[m] = Zero();
  for (int64_t k = 0; k < adapters.rank; k += kPerWord, b += 64) {
    F32x16 first, second = Zero();
    if constexpr (kPerWord == 1) {
      first = Load(reinterpret_cast<const float*>(b));
    } else {
      first = EvenOfPairs(b);
      second = OddOfPairs(b);
    }
    const bool pair = kPerWord == 2 && k + 1 < adapters.rank;
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
      const float* row = t + m * adapters.t_stride + k;
      chains[m] = Fma(Set1(row[0]), first, chains[m]);
      if (pair) chains[m] = Fma(Set1(row[1]), second, chains[m]);
    }
  }
}

// Returns sum + d, or `sum` unchanged if d is not a normal number; NaN is propagated.
TANDEM_INLINE F32x16 AddNormal(F32x16 sum, F32x16 d) {
  const F32x16 magnitude = Max(Negate(d), d);  // d if it is NaN
  return SelectLess(magnitude, Set1(0x1p-126f), sum, Add(sum, d));
}

// Adds a part's d to lanes [first, last) of kRows sums that are `step` elements apart.
template <typename T, int kRows>
TANDEM_INLINE void AddPart(const AdapterSums& adapters,
                           const float* t,
                           const std::byte* b,
                           int64_t first,
                           int64_t last,
                           float* sums,
                           int64_t step) {
  F32x16 chains[kRows];
  RankChains<T, kRows>(adapters, t, b, chains);
  const F32x16 scaling = Set1(adapters.scaling);
  for (int m = 0; m < kRows; ++m) {
    float* const to = sums + m * step;
    const F32x16 sum = AddNormal(Load(to), Mul(chains[m], scaling));
    if (first == 0 && last == 16) {
      Store(to, sum);
      continue;
    }
    float lanes[16];
    Store(lanes, sum);
    for (int64_t lane = first; lane < last; ++lane) to[lane] = lanes[lane];
  }
}

// A part may end inside a panel.
template <typename T>
__attribute__((noinline)) void AddAdapterSums(const AdapterSums& adapters,
                                              TileRange range,
                                              float* tile) {
  const int64_t step = range.panels * 16;
  for (int64_t v = 0; v < range.panels; ++v) {
    const int64_t col = (range.panel + v) * 16;
    const std::byte* const b = adapters.b + (range.panel + v) * adapters.panel_bytes;
    for (int part = 0; part < adapters.parts; ++part) {
      const int64_t first = Larger(adapters.part[part].first - col, int64_t{0});
      const int64_t last = Smaller(adapters.part[part].last - col, int64_t{16});
      if (first >= last) continue;
      const float* const t = adapters.t + range.row * adapters.t_stride + part * adapters.rank;
      int64_t m = 0;
      for (; m + 8 <= range.rows; m += 8) {
        AddPart<T, 8>(adapters, t + m * adapters.t_stride, b, first, last, tile + m * step + v * 16,
                      step);
      }
      for (; m < range.rows; ++m) {
        AddPart<T, 1>(adapters, t + m * adapters.t_stride, b, first, last, tile + m * step + v * 16,
                      step);
      }
    }
  }
}

}  // namespace

// Backward products with a dimension of an adapter's rank (RankProductCall). They are small
// compared with products with the weight, and in fp32, like the values between A and B.

namespace {

TANDEM_INLINE float WidenOne(float x) { return x; }
TANDEM_INLINE float WidenOne(BfloatBits x) {
  const uint32_t bits = static_cast<uint32_t>(x) << 16;
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}

// Computes kRows rows of the output from row i on, 16 columns at a time.
template <typename X, typename Y, int kRows>
TANDEM_INLINE void RankRows(const RankProductCall& call, int64_t i) {
  const X* const x = static_cast<const X*>(call.x) + i * call.x_i;
  const F32x16 scale = Set1(call.scale);
  for (int64_t col = 0; col < call.cols; col += 16) {
    const int64_t n = call.cols - col;
    const Y* y = static_cast<const Y*>(call.y) + col;
    float* const out = call.out + i * call.out_stride + col;
    F32x16 sums[kRows];
    for (int m = 0; m < kRows; ++m) {
      sums[m] = call.add ? LoadUpTo(out + m * call.out_stride, n) : Zero();
    }
    for (int64_t j = 0; j < call.terms; ++j, y += call.y_stride) {
      const F32x16 values = LoadUpTo(y, n);
      const X* const factor = x + j * call.x_j;
#pragma GCC unroll 8
      for (int m = 0; m < kRows; ++m) {
        sums[m] = Fma(Set1(WidenOne(factor[m * call.x_i])), values, sums[m]);
      }
    }
    for (int m = 0; m < kRows; ++m) {
      StoreUpTo(out + m * call.out_stride, call.add ? sums[m] : Mul(sums[m], scale), n);
    }
  }
}

template <typename X, typename Y>
void RankProduct(const RankProductCall& call, int64_t i0, int64_t i1) {
  int64_t i = i0;
  for (; i + 8 <= i1; i += 8) RankRows<X, Y, 8>(call, i);
  for (; i < i1; ++i) RankRows<X, Y, 1>(call, i);
}

}  // namespace

}  // namespace tandem
