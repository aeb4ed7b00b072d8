// The size of a packed weight (common/ops/cpu/packed_weight.h), which planning and kernels must
// agree on.
#pragma once

#include <cstdint>

namespace tandem {

// How the linear weights of a storage lie, which the ops that read them decide: in panels (a CPU's
// kernels) or dense row-major [rows, cols] (a GPU's).
enum class WeightFormat { kPanels, kRowMajor };

// Rows of a panel. Ranges that begin on one and span whole panels move fastest.
inline constexpr int64_t kPackedPanelRows = 16;

// Bytes of a packed [rows, cols] weight: panels of 16 rows; bf16 columns are rounded up to 32.
constexpr int64_t PackedWeightBytes(int64_t rows, int64_t cols, int64_t element_bytes) {
  const int64_t padded_cols = element_bytes == 2 ? (cols + 31) / 32 * 32 : cols;
  return (rows + kPackedPanelRows - 1) / kPackedPanelRows * kPackedPanelRows * padded_cols *
         element_bytes;
}

}  // namespace tandem
