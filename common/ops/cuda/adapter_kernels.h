// Launchers of the kernels for separate adapters (docs/reference/numerics.md): products from wide
// rows to the rank and back, and sums over rows. The order of every sum depends on the shapes of A
// and B alone; a row's bits do not depend on other rows.
//
// Matrices are bf16 in device memory, with rows aligned to 16 bytes; columns and the ends of parts
// are multiples of 8. The fp32 values of a row for all parts' ranks are adjacent. Without rows
// nothing is launched. As thread-safe as launches are.
#pragma once

#include <cstdint>

#include "common/device/cuda/launch.h"
#include "common/ops/ops_types.h"

namespace tandem {

// Which matrix of an adapter a product uses: A [parts * rank, cols], where every part uses all
// columns, or B [cols, rank], where a part uses columns [row, row + rows).
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
// with B. Eight chains, where chain i has the blocks of 32 columns i, i + 8, ... in tensor-core
// steps of 16, are added in ascending order; the result is multiplied by scale.
void LaunchToRank(CudaStream stream, const RankProduct& product, Matrix wide, float* t);

// wide += p * scale, rounded to bf16 once more, where p = fma(t[k], ..., p) from 0 over a part's k,
// ascending, and with A over the parts that have rows, in order. A p * scale below the smallest
// normal number leaves a value unchanged.
void LaunchFromRank(CudaStream stream, const RankProduct& product, const float* t, Matrix wide);

// Gradients of one part: for each column of wide and each of the `rank` values of t, whose rows are
// t_stride apart, sums += one chain of fused multiply-adds over the rows, ascending, which
// continues where the last call ended. The sum of column c and value k is sums[c * of_column + k *
// of_rank].
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
