// Spreads one product over the pool. Tasks are rectangles of rows and panels; k is never split.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/ops/cpu/kernels/kernel_set.h"
#include "common/process/threads.h"

namespace tandem {

// Computes all of C [rows, call.n].
void RunGemm(ThreadPool& pool, const KernelSet& kernels, const GemmCall& call, int64_t rows);

// Rearranges matrices into panels, which are the B operand of the GEMM kernel (and its A operand in
// weight gradients): [panels of 16][words][16] 32-bit words. A word has one fp32 or two bf16 that
// are adjacent along the summed dimension. Missing elements become zero.

// Words along a summed dimension with `count` elements.
constexpr int64_t PanelWords(int64_t count, int64_t element_bytes) {
  return (count * element_bytes + 3) / 4;
}
// Bytes of one panel, and of all panels of `lanes` columns.
constexpr int64_t PanelBytes(int64_t summed, int64_t element_bytes) {
  return PanelWords(summed, element_bytes) * 64;
}
constexpr int64_t PanelsBytes(int64_t lanes, int64_t summed, int64_t element_bytes) {
  return (lanes + 15) / 16 * PanelBytes(summed, element_bytes);
}

// A row-major matrix; stride in elements.
struct PanelSource {
  const void* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  int64_t element_bytes = 2;
};

// Panels of 16 rows, summed over columns: B of X Sᵀ.
void PackRowPanels(const PanelSource& source, std::byte* panels);
// Panels [first, last) of 16 columns each, summed over rows: B of X S, or A of Sᵀ X. `panels` is
// the address of panel 0, even if it is not written.
void PackColumnPanels(const PanelSource& source, int64_t first, int64_t last, std::byte* panels);
// Converts a packed weight [rows, cols] (packed_weight.h) to panels [first, last) of 16 columns
// each, summed over rows rounded up to 16: B of X W.
void TransposePackedWeight(const std::byte* packed,
                           int64_t rows,
                           int64_t cols,
                           int64_t element_bytes,
                           int64_t first,
                           int64_t last,
                           std::byte* panels);

}  // namespace tandem
