// The GEMM micro-kernel of numerics class seq: a register block of up to 8 rows by kMaxPanels
// panels of 16 columns, over the whole k. Each element of C is one chain of sums in ascending k
// whatever the block, so no result depends on how rows and panels are divided.
#pragma once

#include <stdlib.h>

#include "common/ops/cpu/kernels/adapter.h"
#include "common/ops/cpu/kernels/kernel_set.h"
#include "common/ops/cpu/kernels/vec_elements.h"

namespace tandem {
namespace {

// How far ahead of use B is prefetched, in bytes. B is read once per row block, from L2 or beyond.
constexpr int64_t kPrefetchBytes = 512;

template <typename T, int kRows, int kPanels>
struct RegisterBlock {
  F32x16 acc[kRows][kPanels];

  TANDEM_INLINE void Load(const float* tile) {
#pragma GCC unroll 12
    for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
      for (int v = 0; v < kPanels; ++v) acc[m][v] = tandem::Load(tile + (m * kPanels + v) * 16);
    }
  }
  TANDEM_INLINE void Store(float* tile) const {
#pragma GCC unroll 12
    for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
      for (int v = 0; v < kPanels; ++v) tandem::Store(tile + (m * kPanels + v) * 16, acc[m][v]);
    }
  }
  // Adds one word of every row, which load_a(row) returns.
  template <typename LoadA>
  TANDEM_INLINE void Step(const std::byte* b, int64_t panel_bytes, const LoadA& load_a) {
    typename Words<T>::B columns[kPanels];
#pragma GCC unroll 4
    for (int v = 0; v < kPanels; ++v) {
      columns[v] = Words<T>::LoadB(b + v * panel_bytes);
      _mm_prefetch(reinterpret_cast<const char*>(b) + v * panel_bytes + kPrefetchBytes,
                   _MM_HINT_T0);
    }
#pragma GCC unroll 12
    for (int m = 0; m < kRows; ++m) {
      const typename Words<T>::A row = load_a(m);
#pragma GCC unroll 4
      for (int v = 0; v < kPanels; ++v) acc[m][v] = Words<T>::Dot(acc[m][v], row, columns[v]);
    }
  }
};

// Copy C between its matrix and a dense tile [rows][panels][16] of accumulators. They only move
// data, so they are not inlined into the register blocks, which exist in many sizes.
__attribute__((noinline)) void LoadTile(const GemmCall& call, TileRange range, float* tile) {
  for (int64_t m = 0; m < range.rows; ++m) {
    const float* c = static_cast<const float*>(call.c) + (range.row + m) * call.c_stride;
    for (int64_t v = 0; v < range.panels; ++v, tile += 16) {
      const int64_t col = (range.panel + v) * 16;
      Store(tile, LoadUpTo(c + col, call.n - col));
    }
  }
}

// Adds adapters and the bias, and rounds once. Overwrites the tile.
template <typename T>
__attribute__((noinline)) void StoreTile(const GemmCall& call, TileRange range, float* tile) {
  if (call.adapters != nullptr) AddAdapterSums<T>(*call.adapters, range, tile);
  for (int64_t m = 0; m < range.rows; ++m) {
    const int64_t at = (range.row + m) * call.c_stride;
    for (int64_t v = 0; v < range.panels; ++v, tile += 16) {
      const int64_t col = (range.panel + v) * 16, n = call.n - col;
      F32x16 sum = Load(tile);
      if (call.bias != nullptr) {
        sum = Add(sum, LoadUpTo(static_cast<const T*>(call.bias) + col, n));
      }
      if (call.output == GemmCall::Output::kRounded) {
        StoreUpTo(static_cast<T*>(call.c) + at + col, sum, n);
      } else {
        StoreUpTo(static_cast<float*>(call.c) + at + col, sum, n);
      }
    }
  }
}

// The words of a row block's A: in the caller's memory, or widened to fp32 in a buffer.
struct BlockA {
  const std::byte* first = nullptr;  // of the block's first row
  int64_t row_step = 0;              // bytes
};

template <typename T, int kRows, int kPanels, bool kPanelA>
void GemmBlock(const GemmCall& call, BlockA a, int64_t row, int64_t panel) {
  constexpr int64_t kPerWord = 4 / sizeof(T);
  constexpr bool kPadded = kPanelA || Words<T>::kWidenA;  // the last word of A is complete
  constexpr int64_t kWordStep = (kPanelA ? 64 : 4) * (Words<T>::kWidenA ? 2 : 1);
  const int64_t words = kPadded ? (call.k + kPerWord - 1) / kPerWord : call.k / kPerWord;
  const std::byte* b = call.b + panel * call.panel_bytes;
  const TileRange range = {row, kRows, panel, kPanels};
  alignas(64) float tile[kRows * kPanels * 16];
  RegisterBlock<T, kRows, kPanels> block;
  if (call.output == GemmCall::Output::kAccumulate) {
    LoadTile(call, range, tile);
  } else {
    __builtin_memset(tile, 0, sizeof(tile));
  }
  block.Load(tile);
  for (int64_t w = 0; w < words; ++w) {
    const std::byte* a_words = a.first + w * kWordStep;
    block.Step(b + w * 64, call.panel_bytes,
               [&](int m) { return Words<T>::LoadA(a_words + m * a.row_step); });
  }
  if constexpr (!kPadded && kPerWord > 1) {
    if (call.k % kPerWord != 0) {
      const std::byte* a_words = a.first + words * 4;
      block.Step(b + words * 64, call.panel_bytes,
                 [&](int m) { return Words<T>::FromWord(LoadHalfWord(a_words + m * a.row_step)); });
    }
  }
  block.Store(tile);
  StoreTile<T>(call, range, tile);
}

// The register blocks that exist. A panel of A has 16 rows, so two blocks of 8 rows by 3 panels
// suit it best.
template <typename T, bool kPanelA>
struct BlockShape {
  static constexpr int kMaxPanels =
      kPanelA ? Smaller(Words<T>::kMaxPanels, 3) : Words<T>::kMaxPanels;
  static constexpr int MaxRows(int panels) {
    return kPanelA ? Smaller(Words<T>::MaxRows(panels), 8) : Words<T>::MaxRows(panels);
  }
};

// Calls GemmBlock for a number of rows that is known at run time.
template <typename T, int kRows, int kPanels, bool kPanelA>
TANDEM_INLINE void GemmRows(
    const GemmCall& call, BlockA a, int64_t row, int64_t rows, int64_t panel) {
  if (rows == kRows) return GemmBlock<T, kRows, kPanels, kPanelA>(call, a, row, panel);
  if constexpr (kRows > 1) GemmRows<T, kRows - 1, kPanels, kPanelA>(call, a, row, rows, panel);
}

// Calls GemmBlock for numbers of rows and panels that are known at run time.
template <typename T, int kPanels, bool kPanelA>
TANDEM_INLINE void GemmPanels(
    const GemmCall& call, BlockA a, int64_t row, int64_t rows, int64_t panel, int64_t panels) {
  if (panels == kPanels) {
    return GemmRows<T, BlockShape<T, kPanelA>::MaxRows(kPanels), kPanels, kPanelA>(call, a, row,
                                                                                   rows, panel);
  }
  if constexpr (kPanels > 1) {
    GemmPanels<T, kPanels - 1, kPanelA>(call, a, row, rows, panel, panels);
  }
}

// Each thread's buffer for the widened A of a row block: at most 12 rows of k + 31 fp32.
struct WideBuffer {
  std::byte* memory = nullptr;
  int64_t capacity = 0;

  ~WideBuffer() { free(memory); }
  std::byte* Get(int64_t bytes) {
    if (bytes > capacity) {
      free(memory);
      capacity = (bytes + 4095) / 4096 * 4096;
      memory = static_cast<std::byte*>(aligned_alloc(64, static_cast<size_t>(capacity)));
      if (memory == nullptr) __builtin_trap();
    }
    return memory;
  }
};

TANDEM_INLINE void WidenRow(const BfloatBits* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; i += 16) Store(to + i, LoadUpTo(from + i, count - i));
}

// Returns A of rows [row, row + rows), widened if the instruction set needs it; if A is in panels,
// from the panel that begins at `row`.
template <typename T, bool kPanelA>
TANDEM_INLINE BlockA PrepareA(const GemmCall& call, int64_t row, int64_t rows) {
  const std::byte* a = static_cast<const std::byte*>(call.a);
  const int64_t row_bytes = call.a_stride * static_cast<int64_t>(sizeof(T));
  if constexpr (!Words<T>::kWidenA) {
    if (kPanelA) return {a + row / 16 * call.a_panel_bytes, 4};
    return {a + row * row_bytes, row_bytes};
  } else {
    static thread_local WideBuffer buffer;
    if constexpr (kPanelA) {
      const int64_t count = (call.k + 1) / 2 * 32;
      std::byte* wide = buffer.Get(count * 4);
      WidenRow(reinterpret_cast<const BfloatBits*>(a + row / 16 * call.a_panel_bytes), count,
               reinterpret_cast<float*>(wide));
      return {wide, 8};
    } else {
      // Not a power of two, or the rows would use the same cache sets.
      const int64_t step = ((call.k + 15) / 16 * 16 + 16) * 4;
      std::byte* wide = buffer.Get(rows * step);
      for (int64_t m = 0; m < rows; ++m) {
        WidenRow(reinterpret_cast<const BfloatBits*>(a + (row + m) * row_bytes), call.k,
                 reinterpret_cast<float*>(wide + m * step));
      }
      return {wide, step};
    }
  }
}

// Panels of B per pass over the rows: few enough to stay in L2 for all row blocks, and enough to be
// worth the preparation of A. A multiple of 2, 3 and 4.
constexpr int64_t kPanelsPerPass = 12;

// Computes rows [row, row + rows), divided evenly into register blocks, for one pass of panels.
template <typename T, bool kPanelA>
TANDEM_INLINE void GemmPass(
    const GemmCall& call, int64_t row0, int64_t rows, int64_t panel0, int64_t panels) {
  using W = BlockShape<T, kPanelA>;
  int width = W::kMaxPanels;
  while (width > 1 && rows > W::MaxRows(width) && W::MaxRows(width - 1) > W::MaxRows(width)) {
    --width;
  }
  const int64_t blocks = (rows + W::MaxRows(width) - 1) / W::MaxRows(width);
  // Smaller blocks leave registers for more panels.
  while (width < W::kMaxPanels && (rows + blocks - 1) / blocks <= W::MaxRows(width + 1)) ++width;
  BlockA a;
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t row = rows * i / blocks;
    const int64_t count = rows * (i + 1) / blocks - row;
    if (!kPanelA || i == 0) a = PrepareA<T, kPanelA>(call, row0 + row, count);
    const BlockA block = {a.first + (kPanelA ? row * a.row_step : 0), a.row_step};
    for (int64_t panel = panel0; panel < panel0 + panels; panel += width) {
      const int64_t wide = Smaller<int64_t>(width, panel0 + panels - panel);
      GemmPanels<T, W::kMaxPanels, kPanelA>(call, block, row0 + row, count, panel, wide);
    }
  }
}

// State that a thread keeps over several products: none here; in gemm_amx.h the tile registers.
template <typename T>
class GemmContext {
 public:
  // Rounding the length of a sum up to a multiple of this costs no time.
  static constexpr int64_t kSumUnit = 2;
  // 240 rows are complete register blocks of 6 and of 8. B needs no split by size, as every pass of
  // panels is small.
  static constexpr GemmCut kCut = {
      .a_elements = 384 << 10, .b_elements = int64_t{1} << 40, .min_rows = 240, .min_panels = 9};

  void Run(const GemmCall& call, int64_t row0, int64_t row1, int64_t panel0, int64_t panel1) {
    for (int64_t panel = panel0; panel < panel1; panel += kPanelsPerPass) {
      const int64_t panels = Smaller(kPanelsPerPass, panel1 - panel);
      if (call.a_panel_bytes == 0) {
        GemmPass<T, false>(call, row0, row1 - row0, panel, panels);
        continue;
      }
      for (int64_t row = row0; row < row1; row += 16) {
        GemmPass<T, true>(call, row, Smaller<int64_t>(16, row1 - row), panel, panels);
      }
    }
  }
};

template <typename T>
void Gemm(const GemmCall& call, int64_t row0, int64_t row1, int64_t panel0, int64_t panel1) {
  GemmContext<T>().Run(call, row0, row1, panel0, panel1);
}

}  // namespace
}  // namespace tandem
