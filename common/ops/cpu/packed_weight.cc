#include "common/ops/cpu/packed_weight.h"

#include <algorithm>
#include <cstring>

#include <immintrin.h>

#include "common/base/check.h"
#include "common/ops/cpu/kernels/transpose_words.h"

namespace tandem {
namespace {

constexpr int64_t kPanelRows = kPackedPanelRows;
constexpr int64_t kLineBytes = kPanelRows * 4;  // one word of every row

// Both formats are panels of [words][16] 32-bit words: a word is a pair of bf16 along k, or one
// fp32. `tail_bytes` are the valid bytes of a last, partial word.
struct PanelShape {
  int64_t row_bytes;    // bytes of one logical row
  int64_t full_words;   // whole words in a logical row
  int64_t tail_bytes;   // 0 or 2
  int64_t panel_words;  // words per lane including padding
  int64_t panel_bytes() const { return panel_words * kLineBytes; }
  int64_t whole(int64_t words) const { return full_words / words * words; }
};

PanelShape MakePanelShape(int64_t cols, DType dtype) {
  TANDEM_CHECK(dtype == DType::kBFloat16 || dtype == DType::kFloat32,
               "packed weights are bf16 or fp32");
  if (dtype == DType::kFloat32) return {cols * 4, cols, 0, cols};
  return {cols * 2, cols / 2, (cols % 2) * 2, (cols + 31) / 32 * 16};
}

// Complete panels are written with streaming stores: a worker reads its weights long after they
// arrive, and fetching the lines to overwrite them would double the traffic. 13 GB/s instead of 6
// (one core of Granite Rapids, from a slot in the cache).
enum class Store { kCached, kStreamed };

template <Store kStore>
inline void StoreWords(std::byte* to, __m128i words) {
  if constexpr (kStore == Store::kStreamed) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to), words);
  } else {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), words);
  }
}

// Transposes a 4 x 4 block of words: lane i of `from` (stride from_bytes) becomes column i of `to`.
template <Store kStore = Store::kCached>
inline void Transpose4x4(const std::byte* from,
                         int64_t from_bytes,
                         std::byte* to,
                         int64_t to_bytes) {
  const auto load = [&](int64_t i) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * from_bytes));
  };
  const __m128i r0 = load(0), r1 = load(1), r2 = load(2), r3 = load(3);
  const __m128i low01 = _mm_unpacklo_epi32(r0, r1), high01 = _mm_unpackhi_epi32(r0, r1);
  const __m128i low23 = _mm_unpacklo_epi32(r2, r3), high23 = _mm_unpackhi_epi32(r2, r3);
  StoreWords<kStore>(to, _mm_unpacklo_epi64(low01, low23));
  StoreWords<kStore>(to + to_bytes, _mm_unpackhi_epi64(low01, low23));
  StoreWords<kStore>(to + 2 * to_bytes, _mm_unpacklo_epi64(high01, high23));
  StoreWords<kStore>(to + 3 * to_bytes, _mm_unpackhi_epi64(high01, high23));
}

// Packs the first `words` words (a multiple of 16) of 16 rows into a panel.
using PackPanelFunction = void (*)(const std::byte* rows,
                                   int64_t row_bytes,
                                   int64_t words,
                                   std::byte* panel);

template <Store kStore>
void PackPanelSse2(const std::byte* rows, int64_t row_bytes, int64_t words, std::byte* panel) {
  for (int64_t word = 0; word < words; word += 4) {
    for (int64_t row = 0; row < kPanelRows; row += 4) {
      Transpose4x4<kStore>(rows + row * row_bytes + word * 4, row_bytes,
                           panel + word * kLineBytes + row * 4, kLineBytes);
    }
  }
}

__attribute__((target("avx512f"))) void PackPanelAvx512(const std::byte* rows,
                                                        int64_t row_bytes,
                                                        int64_t words,
                                                        std::byte* panel) {
  for (int64_t word = 0; word < words; word += 16) {
    __m512i block[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) block[i] = _mm512_loadu_si512(rows + i * row_bytes + word * 4);
    TransposeWords(block);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      std::byte* line = panel + (word + i) * kLineBytes;
      _mm512_stream_si512(reinterpret_cast<__m512i*>(line), block[i]);
    }
  }
}

PackPanelFunction ChoosePackPanel(const std::byte* packed) {
  if (reinterpret_cast<uintptr_t>(packed) % kLineBytes != 0) return PackPanelSse2<Store::kCached>;
  static const bool avx512 = __builtin_cpu_supports("avx512f") != 0;
  return avx512 ? PackPanelAvx512 : PackPanelSse2<Store::kStreamed>;
}

// Prefetch distance for reads, which pass over memory once.
constexpr int64_t kPrefetchBytes = 2048;

// The inverse: unpacks the first `words` words (a multiple of 16) of a panel into 16 rows.
using UnpackPanelFunction = void (*)(const std::byte* panel,
                                     int64_t words,
                                     int64_t row_bytes,
                                     std::byte* rows);

void UnpackPanelSse2(const std::byte* panel, int64_t words, int64_t row_bytes, std::byte* rows) {
  for (int64_t word = 0; word < words; word += 4) {
    const std::byte* lines = panel + word * kLineBytes;
    for (int64_t i = 0; i < 4; ++i) {
      _mm_prefetch(reinterpret_cast<const char*>(lines) + kPrefetchBytes + i * kLineBytes,
                   _MM_HINT_T0);
    }
    for (int64_t row = 0; row < kPanelRows; row += 4) {
      Transpose4x4(lines + row * 4, kLineBytes, rows + row * row_bytes + word * 4, row_bytes);
    }
  }
}

__attribute__((target("avx512f"))) void UnpackPanelAvx512(const std::byte* panel,
                                                          int64_t words,
                                                          int64_t row_bytes,
                                                          std::byte* rows) {
  for (int64_t word = 0; word < words; word += 16) {
    const std::byte* lines = panel + word * kLineBytes;
    __m512i block[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      _mm_prefetch(reinterpret_cast<const char*>(lines) + kPrefetchBytes + i * kLineBytes,
                   _MM_HINT_T0);
      block[i] = _mm512_loadu_si512(lines + i * kLineBytes);
    }
    TransposeWords(block);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) _mm512_storeu_si512(rows + i * row_bytes + word * 4, block[i]);
  }
}

UnpackPanelFunction ChooseUnpackPanel() {
  static const bool avx512 = __builtin_cpu_supports("avx512f") != 0;
  return avx512 ? UnpackPanelAvx512 : UnpackPanelSse2;
}

// Packs one logical row, word by word, starting at `word`.
void PackRow(const PanelShape& shape, const std::byte* row, int64_t word, std::byte* lane) {
  for (; word < shape.full_words; ++word) {
    std::memcpy(lane + word * kLineBytes, row + word * 4, 4);
  }
  if (shape.tail_bytes != 0) {
    std::memcpy(lane + shape.full_words * kLineBytes, row + shape.full_words * 4,
                static_cast<size_t>(shape.tail_bytes));
  }
}

void UnpackRow(const PanelShape& shape, const std::byte* lane, int64_t word, std::byte* row) {
  for (; word < shape.full_words; ++word) {
    std::memcpy(row + word * 4, lane + word * kLineBytes, 4);
  }
  if (shape.tail_bytes != 0) {
    std::memcpy(row + shape.full_words * 4, lane + shape.full_words * kLineBytes,
                static_cast<size_t>(shape.tail_bytes));
  }
}

}  // namespace

int64_t PackedBytes(int64_t rows, int64_t cols, DType dtype) {
  return PackedWeightBytes(rows, cols, static_cast<int64_t>(DTypeBytes(dtype)));
}

void PackRows(
    std::byte* packed, int64_t cols, DType dtype, int64_t row0, int64_t rows, const void* source) {
  const PanelShape shape = MakePanelShape(cols, dtype);
  const PackPanelFunction pack_panel = ChoosePackPanel(packed);
  const std::byte* from = static_cast<const std::byte*>(source);
  for (int64_t i = 0; i < rows;) {
    const int64_t row = row0 + i;
    std::byte* lane = packed + row / kPanelRows * shape.panel_bytes() + row % kPanelRows * 4;
    const std::byte* row_bytes = from + i * shape.row_bytes;
    int64_t count = 1, word = 0;
    if (row % kPanelRows == 0 && rows - i >= kPanelRows) {
      count = kPanelRows;
      word = shape.whole(16);
      pack_panel(row_bytes, shape.row_bytes, word, lane);
    } else if (row % 4 == 0 && rows - i >= 4) {
      count = 4;
      for (; word < shape.whole(4); word += 4) {
        Transpose4x4(row_bytes + word * 4, shape.row_bytes, lane + word * kLineBytes, kLineBytes);
      }
    }
    for (int64_t r = 0; r < count; ++r) {
      PackRow(shape, row_bytes + r * shape.row_bytes, word, lane + r * 4);
    }
    i += count;
  }
  _mm_sfence();  // streaming stores are not ordered with other stores
}

void UnpackRows(
    const std::byte* packed, int64_t cols, DType dtype, int64_t row0, int64_t rows, void* dest) {
  const PanelShape shape = MakePanelShape(cols, dtype);
  const UnpackPanelFunction unpack_panel = ChooseUnpackPanel();
  std::byte* to = static_cast<std::byte*>(dest);
  for (int64_t i = 0; i < rows;) {
    const int64_t row = row0 + i;
    const std::byte* lane = packed + row / kPanelRows * shape.panel_bytes() + row % kPanelRows * 4;
    std::byte* row_bytes = to + i * shape.row_bytes;
    int64_t count = 1, word = 0;
    if (row % kPanelRows == 0 && rows - i >= kPanelRows) {
      count = kPanelRows;
      word = shape.whole(16);
      unpack_panel(lane, word, shape.row_bytes, row_bytes);
    } else if (row % 4 == 0 && rows - i >= 4) {
      count = 4;
      for (; word < shape.whole(4); word += 4) {
        Transpose4x4(lane + word * kLineBytes, kLineBytes, row_bytes + word * 4, shape.row_bytes);
      }
    }
    for (int64_t r = 0; r < count; ++r) {
      UnpackRow(shape, lane + r * 4, word, row_bytes + r * shape.row_bytes);
    }
    i += count;
  }
}

int64_t FindDirtyPadding(const std::byte* packed, int64_t rows, int64_t cols, DType dtype) {
  const PanelShape shape = MakePanelShape(cols, dtype);
  const auto dirty = [&](int64_t begin, int64_t end) {
    const std::byte* found =
        std::find_if(packed + begin, packed + end, [](std::byte b) { return b != std::byte{0}; });
    return found == packed + end ? -1 : found - packed;
  };
  const int64_t last_lanes = rows % kPanelRows;
  for (int64_t row = 0; row < rows; row += kPanelRows) {
    const int64_t panel = row / kPanelRows * shape.panel_bytes();
    const int64_t lanes = rows - row < kPanelRows ? last_lanes : kPanelRows;
    for (int64_t word = 0; lanes < kPanelRows && word < shape.panel_words; ++word) {
      const int64_t line = panel + word * kLineBytes;
      const int64_t at = dirty(line + lanes * 4, line + kLineBytes);
      if (at >= 0) return at;
    }
    int64_t end = panel + shape.full_words * kLineBytes;
    for (int64_t lane = 0; shape.tail_bytes != 0 && lane < kPanelRows; ++lane) {
      const int64_t at = dirty(end + lane * 4 + shape.tail_bytes, end + lane * 4 + 4);
      if (at >= 0) return at;
    }
    if (shape.tail_bytes != 0) end += kLineBytes;
    const int64_t at = dirty(end, panel + shape.panel_bytes());
    if (at >= 0) return at;
  }
  return -1;
}

}  // namespace tandem
