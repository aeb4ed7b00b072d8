// The loops of merge.h in plain C++, for the compiler to vectorise: each file that includes this is
// compiled for one instruction set, and all give the same bits. Included by merge_*.cc alone.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "common/lora/merge_kernels.h"

namespace tandem {
namespace {

constexpr int64_t kLanes = 64;            // columns that are summed at once
constexpr int64_t kTileFloats = 1 << 12;  // of A, to stay in the nearest cache while rows pass

inline float Widen(Bf16 value) { return std::bit_cast<float>(uint32_t{value} << 16); }

// The same result as ToBf16, inline and without branches.
inline Bf16 Round(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet_nan = (bits >> 16) | 0x40u;
  return static_cast<Bf16>((bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
}

// `values` gets `count` elements of the base from `first` on, as fp32.
inline void LoadBase(const MergeBlock& m, int64_t first, int64_t count, float* values) {
  if (m.base_dtype == DType::kFloat32) {
    std::memcpy(values, static_cast<const char*>(m.base) + first * 4,
                static_cast<size_t>(count) * 4);
    return;
  }
  Bf16 halves[kLanes];
  std::memcpy(halves, static_cast<const char*>(m.base) + first * 2, static_cast<size_t>(count) * 2);
  for (int64_t j = 0; j < count; ++j) values[j] = Widen(halves[j]);
}

inline void StoreOut(const MergeBlock& m, int64_t first, int64_t count, const float* values) {
  if (m.out_dtype == DType::kFloat32) {
    std::memcpy(static_cast<char*>(m.out) + first * 4, values, static_cast<size_t>(count) * 4);
    return;
  }
  Bf16 halves[kLanes];
  for (int64_t j = 0; j < count; ++j) halves[j] = Round(values[j]);
  std::memcpy(static_cast<char*>(m.out) + first * 2, halves, static_cast<size_t>(count) * 2);
}

// Adds the scaled products to elements [first, first + count).
inline void AddProducts(const MergeBlock& m, const float* products, int64_t first, int64_t count) {
  const auto scaling = static_cast<float>(m.scaling);
  float values[kLanes], deltas[kLanes];
  LoadBase(m, first, count, values);
  for (int64_t j = 0; j < count; ++j) deltas[j] = products[j] * scaling;
  if (m.rule == MergeRule::kBf16Product) {
    for (int64_t j = 0; j < count; ++j) deltas[j] = Widen(Round(deltas[j]));
  }
  for (int64_t j = 0; j < count; ++j) {
    values[j] = deltas[j] == 0.0f ? values[j] : values[j] + deltas[j];
  }
  StoreOut(m, first, count, values);
}

// kLanes columns from `column` on; the constant count lets the sums stay in registers.
inline void MergeLanes(const MergeBlock& m, int64_t row, int64_t column) {
  const float* b = m.b + row * m.rank;
  float products[kLanes] = {};
  for (int64_t k = 0; k < m.rank; ++k) {
    const float factor = b[k];
    const float* a = m.a + k * m.in + column;
#pragma GCC unroll 64
    for (int64_t j = 0; j < kLanes; ++j) products[j] = __builtin_fmaf(factor, a[j], products[j]);
  }
  AddProducts(m, products, row * m.in + column, kLanes);
}

// What is left of a row: fewer than kLanes columns.
inline void MergeRest(const MergeBlock& m, int64_t row, int64_t column) {
  const float* b = m.b + row * m.rank;
  const int64_t count = m.in - column;
  float products[kLanes] = {};
  for (int64_t k = 0; k < m.rank; ++k) {
    const float* a = m.a + k * m.in + column;
    for (int64_t j = 0; j < count; ++j) products[j] = __builtin_fmaf(b[k], a[j], products[j]);
  }
  AddProducts(m, products, row * m.in + column, count);
}

void Merge(const MergeBlock& m) {
  const int64_t tile = std::max<int64_t>(1, kTileFloats / (m.rank * kLanes)) * kLanes;
  for (int64_t begin = 0; begin < m.in; begin += tile) {
    const int64_t end = std::min(m.in, begin + tile);
    for (int64_t row = 0; row < m.rows; ++row) {
      int64_t column = begin;
      for (; column + kLanes <= end; column += kLanes) MergeLanes(m, row, column);
      if (column < end) MergeRest(m, row, column);
    }
  }
}

}  // namespace
}  // namespace tandem
