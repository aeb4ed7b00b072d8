// The loops of merge.h in plain C++, for the compiler to vectorise. CMakeLists.txt compiles this
// file once for each instruction set, with its options, its name (TANDEM_ISA_NAME) and that of its
// table (TANDEM_ISA_TABLE). All sets give the same bits.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "common/lora/merge_kernels.h"

namespace tandem {
namespace {

constexpr int64_t kLanes = 64;            // columns that are summed at once
constexpr int64_t kTileFloats = 1 << 13;  // of A, to stay in the nearest cache while rows pass
constexpr int64_t kTileRows = 32;

inline float Widen(Bf16 value) { return std::bit_cast<float>(uint32_t{value} << 16); }

// The same result as ToBf16, inline and without branches.
inline Bf16 Round(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet_nan = (bits >> 16) | 0x40u;
  return static_cast<Bf16>((bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
}

// Turns a zero of either sign into -0, which changes no number that it is added to, -0 included.
inline float NegativeZero(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits << 1) == 0 ? 0x80000000u : bits);
}

// `values` gets `count` elements of the base from `first` on, as fp32.
inline void LoadBase(const MergeBlock& m, int64_t first, int64_t count, float* values) {
  if (m.base_dtype == DType::kFloat32) {
    std::memcpy(values, static_cast<const char*>(m.base) + first * 4,
                static_cast<size_t>(count) * 4);
    return;
  }
  Bf16 halves[kLanes] = {};
  std::memcpy(halves, static_cast<const char*>(m.base) + first * 2, static_cast<size_t>(count) * 2);
  for (int64_t j = 0; j < kLanes; ++j) values[j] = Widen(halves[j]);
}

inline void StoreOut(const MergeBlock& m, int64_t first, int64_t count, const float* values) {
  if (m.out_dtype == DType::kFloat32) {
    std::memcpy(static_cast<char*>(m.out) + first * 4, values, static_cast<size_t>(count) * 4);
    return;
  }
  Bf16 halves[kLanes];
  for (int64_t j = 0; j < kLanes; ++j) halves[j] = Round(values[j]);
  std::memcpy(static_cast<char*>(m.out) + first * 2, halves, static_cast<size_t>(count) * 2);
}

// Adds the scaled products to elements [first, first + count). Computes elements after `count` too
// but does not store them, because the compiler vectorises a constant number of lanes.
inline void AddProducts(const MergeBlock& m, const float* products, int64_t first, int64_t count) {
  const auto scaling = static_cast<float>(m.scaling);
  float values[kLanes] = {}, deltas[kLanes];
  LoadBase(m, first, count, values);
  for (int64_t j = 0; j < kLanes; ++j) deltas[j] = products[j] * scaling;
  if (m.rule == MergeRule::kBf16Product) {
    for (int64_t j = 0; j < kLanes; ++j) deltas[j] = Widen(Round(deltas[j]));
  }
  for (int64_t j = 0; j < kLanes; ++j) values[j] += NegativeZero(deltas[j]);
  StoreOut(m, first, count, values);
}

// Columns of A from `first` on, as MergeLanes reads them.
struct Columns {
  const float* a;  // of the first row of A
  int64_t stride;  // floats from a row to the next
};

// kLanes columns, starting at `column`; the constant count keeps the sums in registers.
inline void MergeLanes(const MergeBlock& m, int64_t row, int64_t column, Columns columns) {
  const float* b = m.b + row * m.rank;
  float products[kLanes] = {};
  for (int64_t k = 0; k < m.rank; ++k) {
    const float factor = b[k];
    const float* a = columns.a + k * columns.stride;
#pragma GCC unroll 64
    for (int64_t j = 0; j < kLanes; ++j) products[j] = __builtin_fmaf(factor, a[j], products[j]);
  }
  AddProducts(m, products, row * m.in + column, kLanes);
}

// The rest of a row: fewer than kLanes columns.
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

// Rows [first, first + rows) of columns [begin, end), of which the last of a row may be fewer than
// kLanes.
void MergeTile(const MergeBlock& m, int64_t first, int64_t rows, int64_t begin, int64_t end) {
  alignas(64) float packed[kTileFloats];
  const int64_t whole = begin + (end - begin) / kLanes * kLanes;
  const int64_t width = whole - begin;
  Columns columns{m.a + begin, m.in};
  // Rows of A are often multiples of pages apart and evict each other from the first-level cache,
  // so a tile of them is copied to contiguous memory.
  if (m.rank * width <= kTileFloats) {
    for (int64_t k = 0; k < m.rank; ++k) {
      std::memcpy(packed + k * width, columns.a + k * m.in, static_cast<size_t>(width) * 4);
    }
    columns = {packed, width};
  }
  for (int64_t row = first; row < first + rows; ++row) {
    for (int64_t column = begin; column < whole; column += kLanes) {
      MergeLanes(m, row, column, {columns.a + (column - begin), columns.stride});
    }
    if (whole < end) MergeRest(m, row, whole);
  }
}

void Merge(const MergeBlock& m) {
  const int64_t width = std::max<int64_t>(1, kTileFloats / (m.rank * kLanes)) * kLanes;
  for (int64_t row = 0; row < m.rows; row += kTileRows) {
    const int64_t rows = std::min(kTileRows, m.rows - row);
    for (int64_t begin = 0; begin < m.in; begin += width) {
      MergeTile(m, row, rows, begin, std::min(m.in, begin + width));
    }
  }
}

}  // namespace

const MergeKernel TANDEM_ISA_TABLE = {TANDEM_ISA_NAME, Merge};

}  // namespace tandem
