// The storage format of linear weights, the only copy a worker holds of them.
//
// bf16: a weight [N, K] is in panels of 16 output rows, [ceil(N/16)][Kp/2][16][2], Kp = K rounded
// up to 32: pairs of k interleaved, as vdpbf16ps and AMX tiles read them; padding is zero. fp32:
// panels [ceil(N/16)][K][16]; padding rows are zero. All other code moves rows in and out with
// PackRows and UnpackRows and does not know the format.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/memory/op_sizes.h"
#include "common/types/tensor_view.h"

namespace tandem {

// Bytes of a packed weight; dtype kBFloat16 or kFloat32.
int64_t PackedBytes(int64_t rows, int64_t cols, DType dtype);

// Writes logical rows [row0, row0 + rows) from `source` (row-major, dense, [rows, cols], same
// dtype). Rows may be written in any order and in pieces; padding must have been zeroed once. Pure
// function of its arguments; distinct ranges of rows may be written concurrently only if they do
// not share a panel (16 rows).
void PackRows(
    std::byte* packed, int64_t cols, DType dtype, int64_t row0, int64_t rows, const void* source);

// The inverse: reads logical rows into `dest` (row-major, dense).
void UnpackRows(
    const std::byte* packed, int64_t cols, DType dtype, int64_t row0, int64_t rows, void* dest);

// The offset of the first byte of padding that is not zero; -1 if all are zero. Products read the
// padding.
int64_t FindDirtyPadding(const std::byte* packed, int64_t rows, int64_t cols, DType dtype);

}  // namespace tandem
