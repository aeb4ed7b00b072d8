// Launcher of the kernels that choose a token per row from its logits (sampling.cu, filtering.cu).
// For equal logits, greedy rows and unfiltered rows get the same token as on a CPU
// (cpu/sample_row.h). Filtered rows get it up to the rounding of sums: a CPU adds weights in double
// one by one, while here weights are multiples of 2^-44 of the largest one, whose sums are exact in
// any order; ids with less weight than that are never drawn.
#pragma once

#include <cstdint>

#include "common/device/cuda/launch.h"
#include "common/ops/cuda/rows/logits.h"
#include "common/ops/ops_types.h"

namespace tandem {

enum class DrawKind : int32_t { kGreedy, kWhole, kFiltered };

// A SampleRow as the kernels read it.
struct DrawRow {
  double uniform = 0.5;
  DrawKind kind = DrawKind::kWhole;
  float inverse_temperature = 1;
  float top_p = 1;
  int32_t top_k = -1;  // at most 0: no limit
};
DrawRow MakeDrawRow(const SampleRow& row, int64_t vocab_limit);

// `block` must have all chunks: first_chunk is 0. `sums` and `scores` are the results of
// LaunchLogitSums and LaunchRowScores for the same temperatures. At most kDrawnIds ids.
inline constexpr int64_t kDrawnIds = int64_t{2} << 20;
void LaunchDraws(CudaStream stream,
                 const LogitsBlock& block,
                 const DrawRow* rows,
                 const LogitSums* sums,
                 const RowScore* scores,
                 SampledToken* out);

// The two halves of LaunchDraws: each handles its own rows and ignores the others.
void LaunchPlainDraws(CudaStream stream,
                      const LogitsBlock& block,
                      const DrawRow* rows,
                      const LogitSums* sums,
                      const RowScore* scores,
                      SampledToken* out);
void LaunchFilteredDraws(CudaStream stream,
                         const LogitsBlock& block,
                         const DrawRow* rows,
                         const RowScore* scores,
                         SampledToken* out);

}  // namespace tandem
