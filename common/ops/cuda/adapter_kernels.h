// Launchers of the kernels for separate adapters (docs/reference/numerics.md): from
// wide rows to the rank and back, and sums over rows. The order of every sum follows from the
// shapes of A and B alone; a row's bits are its own.
//
// Matrices are bf16 in device memory, rows aligned to 16 bytes, columns and the ends of parts
// multiples of 8; fp32 values for each part's rank are adjacent in a row. No row, no launch.
// Thread-safe as launches are.
#pragma once

#include <cstdint>

#include "common/device/cuda/launch.h"
#include "common/ops/ops_types.h"

namespace tandem {

// Which matrix of an adapter a product is with: A [parts * rank, cols], whose parts all take all
// columns, or B [cols, rank], of which a part takes columns [row, row + rows).
enum class RankMatrix { kA, kB };

struct RankProduct {
  RankMatrix matrix = RankMatrix::kA;
  const std::byte* values = nullptr;  // of A or B
  int parts = 0;
  int64_t rank = 0;
  LinearAdapter::Part part[LinearAdapter::kParts];  // of B's rows
  float scale = 1;
};

// t [wide.rows, parts * rank] = scale * the sum over a part's columns of wide, with A transposed or
// with B. Eight chains, the i-th of the columns' 32s i, i + 8, ... in tensor-core steps of 16,
// added in ascending order; then times scale.
void LaunchToRank(CudaStream stream, const RankProduct& product, Matrix wide, float* t);

// wide += p * scale, rounded to bf16 once more: p = fma(t[k], ..., p) from 0 over a part's k,
// ascending, and with A over the parts with rows in turn. p * scale below the smallest normal
// number leaves a value as it is.
void LaunchFromRank(CudaStream stream, const RankProduct& product, const float* t, Matrix wide);

// Gradients of one part: sums += for each column of wide and each of the `rank` values of t, whose
// rows are t_stride apart, one chain of fused multiply-adds over the rows, ascending, that goes on
// where the last call ended. Of column c and value k the sum is sums[c * of_column + k * of_rank].
struct RankSums {
  float* sums = nullptr;
  int64_t of_column = 0;
  int64_t of_rank = 0;
};
void LaunchRankSums(CudaStream stream,
                    Matrix wide,
                    const float* t,
                    int64_t t_stride,
                    int64_t rank,
                    const RankSums& sums);

}  // namespace tandem
