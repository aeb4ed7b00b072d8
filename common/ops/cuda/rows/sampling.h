// Launcher of the kernels that choose a token per row from its logits (sampling.cu, filtering.cu).
// From equal logits greedy rows and rows that are not filtered get the very token that a CPU gives
// them (cpu/sample_row.h). Filtered ones get it up to how sums are rounded: a CPU adds weights in
// double one by one, here they are whole multiples of 2^-44 of the largest, whose sums are exact in
// any order; ids of less weight than that are never drawn.
#pragma once

#include <cstdint>

#include "common/device/cuda/launch.h"
#include "common/ops/cuda/rows/logits.h"
#include "common/ops/ops_types.h"

namespace tandem {

enum class DrawKind : int32_t { kGreedy, kWhole, kFiltered };

// A SampleRow as the kernels read it.
struct DrawRow {
  DrawKind kind = DrawKind::kWhole;
  float inverse_temperature = 1;
  float uniform = 0.5f;
  float top_p = 1;
  int32_t top_k = -1;  // at most 0: no limit
};
DrawRow MakeDrawRow(const SampleRow& row, int64_t vocab_limit);

// All chunks of `block` are there: first_chunk is 0. `sums` and `scores` are the results of
// LaunchLogitSums and LaunchRowScores for the same temperatures. At most kDrawnIds ids.
inline constexpr int64_t kDrawnIds = int64_t{2} << 20;
void LaunchDraws(CudaStream stream,
                 const LogitsBlock& block,
                 const DrawRow* rows,
                 const LogitSums* sums,
                 const RowScore* scores,
                 SampledToken* out);

// Its two halves: each looks at its own rows and leaves the others alone.
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
