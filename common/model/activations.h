// The buffers of one layer's forward and backward. The caller owns the bytes (a memory region or an
// arena); these functions only place matrices in them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/model_spec/model_spec.h"
#include "common/ops/ops_types.h"

namespace tandem {

// What a layer's forward writes and its backward reads; all [rows, .] in the compute dtype.
struct LayerActivations {
  Matrix norm1;    // [hidden]
  Matrix qkv;      // [qkv_cols], q and k normed and rotated
  Matrix attn;     // [heads * head_dim]
  Matrix mid;      // [hidden], residual after attention
  Matrix norm2;    // [hidden]
  Matrix gate_up;  // [2 intermediate]
  Matrix act;      // [intermediate]
};

// Further buffers of a layer's backward pass; their contents are scratch.
struct BackwardScratch {
  Matrix dhidden;  // [hidden]
  Matrix dnorm;    // [hidden]
  Matrix dwide;    // [2 intermediate], also dqkv [qkv_cols]
  Matrix dinner;   // [max(intermediate, heads * head_dim)]
  Matrix qk;       // [(heads + kv_heads) * head_dim], only for models with q/k norms
};

// A [rows, cols] matrix of `dtype` at `base`, rows 64-byte aligned.
Matrix PlaceMatrix(std::byte* base, DType dtype, int64_t rows, int64_t cols);
int64_t MatrixBytes(DType dtype, int64_t rows, int64_t cols);

// The bytes that these take: LayerActivationBytes, BackwardScratchBytes
// (common/memory/activation_bytes.h).
LayerActivations PlaceLayerActivations(const ModelSpec& spec,
                                       DType dtype,
                                       int64_t rows,
                                       std::byte* base);
BackwardScratch PlaceBackwardScratch(const ModelSpec& spec,
                                     DType dtype,
                                     int64_t rows,
                                     std::byte* base);

// The same matrix narrowed to `cols` columns, or to rows [row0, row0 + rows).
Matrix Columns(Matrix matrix, DType dtype, int64_t first, int64_t cols);
Matrix Rows(Matrix matrix, DType dtype, int64_t row0, int64_t rows);

}  // namespace tandem
