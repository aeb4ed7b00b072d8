#include "common/ops/cuda/rows/sampling.h"

namespace tandem {

DrawRow MakeDrawRow(const SampleRow& row, int64_t vocab_limit) {
  DrawRow draw;
  draw.uniform = row.uniform;
  if (row.temperature == 0.0f) {
    draw.kind = DrawKind::kGreedy;
    return draw;
  }
  draw.inverse_temperature = 1.0f / row.temperature;
  const bool all_ranks = row.top_k <= 0 || row.top_k >= vocab_limit;
  if (all_ranks && row.top_p >= 1.0f) return draw;
  draw.kind = DrawKind::kFiltered;
  draw.top_p = row.top_p;
  draw.top_k = all_ranks ? -1 : static_cast<int32_t>(row.top_k);
  return draw;
}

void LaunchDraws(CudaStream stream,
                 const LogitsBlock& block,
                 const DrawRow* rows,
                 const LogitSums* sums,
                 const RowScore* scores,
                 SampledToken* out) {
  // Launches both kernels whatever the rows need, because a step that is a graph must have the same
  // launches every time.
  LaunchPlainDraws(stream, block, rows, sums, scores, out);
  LaunchFilteredDraws(stream, block, rows, scores, out);
}

}  // namespace tandem
