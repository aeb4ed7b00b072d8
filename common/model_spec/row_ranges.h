// The ranges of rows in which tensors are loaded, saved and checked, so that no process needs
// memory for a complete tensor.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/model_spec/model_spec.h"

namespace tandem {

inline constexpr int64_t kRowRangeBytes = 1 << 20;

// Rows of a range, at least one: a row that is longer than kRowRangeBytes is a range of its own.
constexpr int64_t RowsPerRange(int64_t row_bytes) {
  return std::max<int64_t>(1, kRowRangeBytes / std::max<int64_t>(1, row_bytes));
}

// Bytes of a range of a rank's `rows` of a tensor in fp32, for digests. Ranges are longer on a GPU,
// because the host waits for it after each range.
constexpr int64_t DigestRangeBytes(int64_t rows, int64_t cols, bool gpu) {
  constexpr int64_t kFloat = 4;
  const int64_t row_bytes = std::max<int64_t>(1, cols * kFloat);
  const int64_t range = gpu ? 32 * kRowRangeBytes : kRowRangeBytes;
  return row_bytes * std::clamp<int64_t>(range / row_bytes, 1, std::max<int64_t>(1, rows));
}

// Size of a buffer that holds any range of the model with elements of `element_bytes`. Every rank
// allocates it under the tag gather while weights are checked (in the compute dtype) or exported (2
// bytes).
inline int64_t RowScratchBytes(const ModelSpec& spec, int64_t element_bytes) {
  int64_t bytes = kRowRangeBytes;
  for (const TensorSpec& tensor : HfTensors(spec)) {
    const int64_t cols = tensor.shape.size() == 2 ? tensor.shape[1] : 1;
    bytes = std::max(bytes, cols * element_bytes);
  }
  return bytes;
}

}  // namespace tandem
