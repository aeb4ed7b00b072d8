// Rows of products on a GPU, which the ops and planning must agree on. cuBLASLt's algorithms are
// proved for whole sixteens of rows (common/ops/cuda/linear/row_invariance.h), and given no others:
// what is left of a product goes through scratch. Bytes unless a name says otherwise.
#pragma once

#include <cstdint>

#include "common/base/round_up.h"
#include "common/memory/cuda_scratch.h"

namespace tandem {

inline constexpr int64_t kProductRows = 16;
// Fewer than these go through scratch as one product, since each reads all of the weight; of more,
// the rows behind the last whole sixteen.
inline constexpr int64_t kFewProductRows = 64;

// Rows that a decoding step is filled up to: none of its layers' products goes through scratch.
constexpr int64_t CudaDecodeRows(int64_t rows) { return RoundUp(CudaStepRows(rows), kProductRows); }

// Such rows of both operands of a product [rows, n] = [rows, k] ..., a's first: bf16, and
// `out_bytes` for each element of the result. Strides are in elements.
struct PaddedRows {
  int64_t rows = 0, a_stride = 0, c_stride = 0;
  int64_t a_bytes = 0, bytes = 0;
};
constexpr PaddedRows PadRows(int64_t rows, int64_t n, int64_t k, int64_t out_bytes) {
  PaddedRows padded;
  padded.rows = RoundUp(rows, kProductRows);
  padded.a_stride = RoundUp(k, 8);
  padded.c_stride = RoundUp(n, 8);
  padded.a_bytes = padded.rows * padded.a_stride * 2;
  padded.bytes = padded.a_bytes + padded.rows * padded.c_stride * out_bytes;
  return padded;
}

}  // namespace tandem
