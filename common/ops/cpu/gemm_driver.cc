#include "common/ops/cpu/gemm_driver.h"

#include <algorithm>

namespace tandem {
namespace {
constexpr int64_t kTasksPerThread = 4;
}  // namespace

void RunGemm(ThreadPool& pool, const KernelSet& kernels, const GemmCall& call, int64_t rows) {
  const GemmCut& cut = kernels.gemm_cut;
  const int64_t panels = (call.n + 15) / 16, units = (panels + cut.panel_unit - 1) / cut.panel_unit;
  const int64_t row_chunks = (rows + cut.rows - 1) / cut.rows;
  const int64_t row_units = (rows + cut.row_unit - 1) / cut.row_unit;
  if (rows <= 0 || panels == 0) return;
  int64_t panel_chunks = 1;
  if (pool.threads() > 1) {
    const int64_t wanted = pool.threads() * kTasksPerThread;
    panel_chunks = std::clamp((wanted + row_chunks - 1) / row_chunks, int64_t{1},
                              std::max(panels / cut.min_panels, int64_t{1}));
  }
  pool.ParallelFor(row_chunks * panel_chunks, [&](int64_t task, int) {
    const int64_t row = task / panel_chunks, panel = task % panel_chunks;
    const auto first_row = [&](int64_t i) {
      return std::min(rows, row_units * i / row_chunks * cut.row_unit);
    };
    const auto first_panel = [&](int64_t i) {
      return std::min(panels, units * i / panel_chunks * cut.panel_unit);
    };
    kernels.gemm(call, first_row(row), first_row(row + 1), first_panel(panel),
                 first_panel(panel + 1));
  });
}

}  // namespace tandem
