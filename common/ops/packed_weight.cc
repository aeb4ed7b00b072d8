#include "common/ops/packed_weight.h"

#include <algorithm>
#include <cstring>

#include <emmintrin.h>

#include "common/base/check.h"

namespace tandem {
namespace {

constexpr int64_t kPanelRows = 16;

// Both formats are panels of [words][16] 32-bit words: a word is a pair of bf16 along k, or one
// fp32. `tail_bytes` are the valid bytes of a last, partial word.
struct PanelShape {
  int64_t row_bytes;    // bytes of one logical row
  int64_t full_words;   // whole words in a logical row
  int64_t tail_bytes;   // 0 or 2
  int64_t panel_words;  // words per lane including padding
  int64_t panel_bytes() const { return panel_words * kPanelRows * 4; }
};

PanelShape MakePanelShape(int64_t cols, DType dtype) {
  TANDEM_CHECK(dtype == DType::kBFloat16 || dtype == DType::kFloat32,
               "packed weights are bf16 or fp32");
  if (dtype == DType::kFloat32) return {cols * 4, cols, 0, cols};
  return {cols * 2, cols / 2, (cols % 2) * 2, (cols + 31) / 32 * 16};
}

// Transposes a 4 x 4 block of words: lane i of `from` (stride from_bytes) becomes column i of `to`.
void Transpose4x4(const std::byte* from, int64_t from_bytes, std::byte* to, int64_t to_bytes) {
  const auto load = [&](int64_t i) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * from_bytes));
  };
  const auto store = [&](int64_t i, __m128i value) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i * to_bytes), value);
  };
  const __m128i r0 = load(0), r1 = load(1), r2 = load(2), r3 = load(3);
  const __m128i low01 = _mm_unpacklo_epi32(r0, r1), high01 = _mm_unpackhi_epi32(r0, r1);
  const __m128i low23 = _mm_unpacklo_epi32(r2, r3), high23 = _mm_unpackhi_epi32(r2, r3);
  store(0, _mm_unpacklo_epi64(low01, low23));
  store(1, _mm_unpackhi_epi64(low01, low23));
  store(2, _mm_unpacklo_epi64(high01, high23));
  store(3, _mm_unpackhi_epi64(high01, high23));
}

// One logical row, word by word from `word` on.
void PackRow(const PanelShape& shape, const std::byte* row, int64_t word, std::byte* lane) {
  for (; word < shape.full_words; ++word) std::memcpy(lane + word * 64, row + word * 4, 4);
  if (shape.tail_bytes != 0) {
    std::memcpy(lane + shape.full_words * 64, row + shape.full_words * 4,
                static_cast<size_t>(shape.tail_bytes));
  }
}

void UnpackRow(const PanelShape& shape, const std::byte* lane, int64_t word, std::byte* row) {
  for (; word < shape.full_words; ++word) std::memcpy(row + word * 4, lane + word * 64, 4);
  if (shape.tail_bytes != 0) {
    std::memcpy(row + shape.full_words * 4, lane + shape.full_words * 64,
                static_cast<size_t>(shape.tail_bytes));
  }
}

}  // namespace

int64_t PackedBytes(int64_t rows, int64_t cols, DType dtype) {
  return (rows + kPanelRows - 1) / kPanelRows * MakePanelShape(cols, dtype).panel_bytes();
}

void PackRows(
    std::byte* packed, int64_t cols, DType dtype, int64_t row0, int64_t rows, const void* source) {
  const PanelShape shape = MakePanelShape(cols, dtype);
  const std::byte* from = static_cast<const std::byte*>(source);
  for (int64_t i = 0; i < rows;) {
    const int64_t row = row0 + i;
    std::byte* lane = packed + row / kPanelRows * shape.panel_bytes() + row % kPanelRows * 4;
    const std::byte* row_bytes = from + i * shape.row_bytes;
    if (row % 4 != 0 || rows - i < 4) {
      PackRow(shape, row_bytes, 0, lane);
      ++i;
      continue;
    }
    const int64_t blocked = shape.full_words / 4 * 4;
    for (int64_t word = 0; word < blocked; word += 4) {
      Transpose4x4(row_bytes + word * 4, shape.row_bytes, lane + word * 64, 64);
    }
    for (int64_t r = 0; r < 4; ++r) {
      PackRow(shape, row_bytes + r * shape.row_bytes, blocked, lane + r * 4);
    }
    i += 4;
  }
}

void UnpackRows(
    const std::byte* packed, int64_t cols, DType dtype, int64_t row0, int64_t rows, void* dest) {
  const PanelShape shape = MakePanelShape(cols, dtype);
  std::byte* to = static_cast<std::byte*>(dest);
  for (int64_t i = 0; i < rows;) {
    const int64_t row = row0 + i;
    const std::byte* lane = packed + row / kPanelRows * shape.panel_bytes() + row % kPanelRows * 4;
    std::byte* row_bytes = to + i * shape.row_bytes;
    if (row % 4 != 0 || rows - i < 4) {
      UnpackRow(shape, lane, 0, row_bytes);
      ++i;
      continue;
    }
    const int64_t blocked = shape.full_words / 4 * 4;
    for (int64_t word = 0; word < blocked; word += 4) {
      Transpose4x4(lane + word * 64, 64, row_bytes + word * 4, shape.row_bytes);
    }
    for (int64_t r = 0; r < 4; ++r) {
      UnpackRow(shape, lane + r * 4, blocked, row_bytes + r * shape.row_bytes);
    }
    i += 4;
  }
}

}  // namespace tandem
