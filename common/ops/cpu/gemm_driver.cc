#include "common/ops/cpu/gemm_driver.h"

#include <algorithm>

namespace tandem {
namespace {
// Rows whose A stays in L2 while a group of panels passes; a multiple of 6 and 8 row blocks.
constexpr int64_t kRowChunk = 240;
// Panels a task has at least: fewer and the register blocks become narrow.
constexpr int64_t kMinPanels = 9;
constexpr int64_t kTasksPerThread = 4;
}  // namespace

void RunGemm(ThreadPool& pool, const KernelSet& kernels, const GemmCall& call, int64_t rows) {
  const int64_t panels = (call.n + 15) / 16;
  const int64_t row_chunks = (rows + kRowChunk - 1) / kRowChunk;
  if (rows <= 0 || panels == 0) return;
  int64_t panel_chunks = 1;
  if (pool.threads() > 1) {
    const int64_t wanted = pool.threads() * kTasksPerThread;
    panel_chunks = std::clamp((wanted + row_chunks - 1) / row_chunks, int64_t{1},
                              std::max(panels / kMinPanels, int64_t{1}));
  }
  pool.ParallelFor(row_chunks * panel_chunks, [&](int64_t task, int) {
    const int64_t row = task / panel_chunks, panel = task % panel_chunks;
    kernels.gemm(call, rows * row / row_chunks, rows * (row + 1) / row_chunks,
                 panels * panel / panel_chunks, panels * (panel + 1) / panel_chunks);
  });
}

}  // namespace tandem
