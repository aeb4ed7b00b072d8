// The GEMM micro-kernel: a register block of up to 8 rows by kMaxPanels panels of 16 columns, over
// the whole k. Each element of C is one chain of sums in ascending k whatever the block, so no
// result depends on how rows and panels are divided.
#pragma once

#include "common/ops/cpu/kernel_set.h"
#include "common/ops/cpu/vec_elements.h"

namespace tandem {
namespace {

// B is read once per row block, from L2 or beyond: this far ahead of use, in bytes.
constexpr int64_t kPrefetchBytes = 512;

template <typename T, int kRows, int kPanels>
struct RegisterBlock {
  F32x16 acc[kRows][kPanels];

  TANDEM_INLINE void Step(const std::byte* b, int64_t panel_bytes, const uint32_t* a) {
    typename Words<T>::B columns[kPanels];
#pragma GCC unroll 4
    for (int v = 0; v < kPanels; ++v) {
      columns[v] = Words<T>::LoadB(b + v * panel_bytes);
      _mm_prefetch(reinterpret_cast<const char*>(b) + v * panel_bytes + kPrefetchBytes,
                   _MM_HINT_T0);
    }
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
      const typename Words<T>::A row = Words<T>::Broadcast(a[m]);
#pragma GCC unroll 4
      for (int v = 0; v < kPanels; ++v) acc[m][v] = Words<T>::Dot(acc[m][v], row, columns[v]);
    }
  }
};

// Writes one vector of C; `n` of its columns exist.
template <typename T>
TANDEM_INLINE void StoreResult(const GemmCall& call, int64_t row, int64_t col, F32x16 sum) {
  const int64_t n = call.n - col;
  const int64_t at = row * call.c_stride + col;
  if (call.bias != nullptr) sum = Add(sum, LoadUpTo(static_cast<const T*>(call.bias) + col, n));
  if (call.output == GemmCall::Output::kRounded) {
    StoreUpTo(static_cast<T*>(call.c) + at, sum, n);
  } else {
    StoreUpTo(static_cast<float*>(call.c) + at, sum, n);
  }
}

// The accumulators' start: zero, or what C holds.
template <typename T, int kRows, int kPanels>
TANDEM_INLINE void StartBlock(const GemmCall& call,
                              int64_t row,
                              int64_t panel,
                              RegisterBlock<T, kRows, kPanels>& block) {
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < kPanels; ++v) block.acc[m][v] = Zero();
  }
  if (call.output != GemmCall::Output::kAccumulate) return;
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < kPanels; ++v) {
      const int64_t col = (panel + v) * 16;
      const float* c = static_cast<const float*>(call.c) + (row + m) * call.c_stride + col;
      block.acc[m][v] = LoadUpTo(c, call.n - col);
    }
  }
}

// kPanelA: A's rows are lanes of one panel, else rows of a row-major matrix.
template <typename T, int kRows, int kPanels, bool kPanelA>
void GemmBlock(const GemmCall& call, int64_t row, int64_t panel) {
  constexpr int64_t kPerWord = 4 / sizeof(T);
  constexpr int64_t kWordStep = kPanelA ? 64 : 4;
  const int64_t words = kPanelA ? (call.k + kPerWord - 1) / kPerWord : call.k / kPerWord;
  const int64_t row_step = kPanelA ? 4 : call.a_stride * static_cast<int64_t>(sizeof(T));
  const std::byte* a = static_cast<const std::byte*>(call.a);
  a += kPanelA ? row / 16 * call.a_panel_bytes + row % 16 * 4 : row * row_step;
  const std::byte* b = call.b + panel * call.panel_bytes;
  RegisterBlock<T, kRows, kPanels> block;
  StartBlock(call, row, panel, block);
  for (int64_t w = 0; w < words; ++w) {
    uint32_t a_words[kRows];
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) a_words[m] = LoadWord(a + m * row_step + w * kWordStep);
    block.Step(b + w * 64, call.panel_bytes, a_words);
  }
  if (!kPanelA && call.k % kPerWord != 0) {
    uint32_t a_words[kRows];
    for (int m = 0; m < kRows; ++m) a_words[m] = LoadHalfWord(a + m * row_step + words * 4);
    block.Step(b + words * 64, call.panel_bytes, a_words);
  }
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < kPanels; ++v) {
      StoreResult<T>(call, row + m, (panel + v) * 16, block.acc[m][v]);
    }
  }
}

template <typename T, int kPanels, bool kPanelA>
void GemmRows(const GemmCall& call, int64_t row, int64_t rows, int64_t panel) {
  constexpr int kMax = MaxRows(kPanels);
  if constexpr (kMax >= 8) {
    if (rows == 8) return GemmBlock<T, 8, kPanels, kPanelA>(call, row, panel);
    if (rows == 7) return GemmBlock<T, 7, kPanels, kPanelA>(call, row, panel);
  }
  if constexpr (kMax >= 6) {
    if (rows == 6) return GemmBlock<T, 6, kPanels, kPanelA>(call, row, panel);
    if (rows == 5) return GemmBlock<T, 5, kPanels, kPanelA>(call, row, panel);
  }
  if (rows == 4) return GemmBlock<T, 4, kPanels, kPanelA>(call, row, panel);
  if (rows == 3) return GemmBlock<T, 3, kPanels, kPanelA>(call, row, panel);
  if (rows == 2) return GemmBlock<T, 2, kPanels, kPanelA>(call, row, panel);
  return GemmBlock<T, 1, kPanels, kPanelA>(call, row, panel);
}

// Some rows, cut evenly into register blocks.
template <typename T, int kPanels, bool kPanelA>
TANDEM_INLINE void GemmRowBlocks(const GemmCall& call, int64_t row, int64_t rows, int64_t panel) {
  const int64_t blocks = (rows + MaxRows(kPanels) - 1) / MaxRows(kPanels);
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t from = rows * i / blocks;
    GemmRows<T, kPanels, kPanelA>(call, row + from, rows * (i + 1) / blocks - from, panel);
  }
}

// One group of panels over all rows: B stays in L1 or L2 while the rows stream by.
template <typename T, int kPanels>
void GemmPanels(const GemmCall& call, int64_t row0, int64_t row1, int64_t panel) {
  if (call.a_panel_bytes == 0) {
    return GemmRowBlocks<T, kPanels, false>(call, row0, row1 - row0, panel);
  }
  for (int64_t row = row0; row < row1;) {
    const int64_t end = Smaller((row / 16 + 1) * 16, row1);
    GemmRowBlocks<T, kPanels, true>(call, row, end - row, panel);
    row = end;
  }
}

template <typename T>
void Gemm(const GemmCall& call, int64_t row0, int64_t row1, int64_t panel0, int64_t panel1) {
  const int64_t panels = panel1 - panel0;
  // Panels of A are 16 rows: two blocks of 8 x 3 beat three of 6 x 4.
  const int64_t widest = call.a_panel_bytes == 0 ? kMaxPanels : Smaller<int64_t>(kMaxPanels, 3);
  const int64_t groups = (panels + widest - 1) / widest;
  for (int64_t i = 0; i < groups; ++i) {
    const int64_t from = panel0 + panels * i / groups;
    const int64_t count = panel0 + panels * (i + 1) / groups - from;
    if constexpr (kMaxPanels >= 4) {
      if (count == 4) GemmPanels<T, 4>(call, row0, row1, from);
    }
    if constexpr (kMaxPanels >= 3) {
      if (count == 3) GemmPanels<T, 3>(call, row0, row1, from);
      if (count == 2) GemmPanels<T, 2>(call, row0, row1, from);
    }
    if (count == 1) GemmPanels<T, 1>(call, row0, row1, from);
  }
}

}  // namespace
}  // namespace tandem
