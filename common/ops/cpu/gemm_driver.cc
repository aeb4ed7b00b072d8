#include "common/ops/cpu/gemm_driver.h"

#include <algorithm>

namespace tandem {
namespace {
constexpr int64_t kGemmTasksPerThread = 4;

// Of a product, in tasks of rows by panels.
struct Pieces {
  int64_t row_chunks = 1, panel_chunks = 1;
};

Pieces CutProduct(
    const GemmCut& cut, int threads, const GemmCall& call, int64_t rows, int64_t row_units) {
  const int64_t wanted = threads > 1 ? threads * kGemmTasksPerThread : 1;
  const int64_t panels = (call.n + 15) / 16;
  Pieces pieces;
  pieces.panel_chunks = (call.n * call.k + cut.b_elements - 1) / cut.b_elements;
  pieces.row_chunks = std::max((rows * call.k + cut.a_elements - 1) / cut.a_elements,
                               std::min(rows / cut.min_rows, wanted / pieces.panel_chunks));
  pieces.row_chunks = std::min(pieces.row_chunks, row_units);
  const int64_t most = std::max(panels / cut.min_panels, int64_t{1});
  const int64_t lacking = (wanted + pieces.row_chunks - 1) / pieces.row_chunks;
  pieces.panel_chunks = std::min(std::max(pieces.panel_chunks, lacking), most);
  return pieces;
}

}  // namespace

void RunGemm(ThreadPool& pool, const KernelSet& kernels, const GemmCall& call, int64_t rows) {
  const GemmCut& cut = kernels.gemm_cut;
  const int64_t panels = (call.n + 15) / 16, units = (panels + cut.panel_unit - 1) / cut.panel_unit;
  // Aᵀ in panels is 16 rows at a time.
  const int64_t row_unit = call.a_panel_bytes == 0 ? cut.row_unit : (cut.row_unit + 15) / 16 * 16;
  const int64_t row_units = (rows + row_unit - 1) / row_unit;
  if (rows <= 0 || panels == 0) return;
  const Pieces pieces = CutProduct(cut, pool.threads(), call, rows, row_units);
  pool.ParallelFor(pieces.row_chunks * pieces.panel_chunks, [&](int64_t task, int) {
    const int64_t row = task % pieces.row_chunks, panel = task / pieces.row_chunks;
    const auto first_row = [&](int64_t i) {
      return std::min(rows, row_units * i / pieces.row_chunks * row_unit);
    };
    const auto first_panel = [&](int64_t i) {
      return std::min(panels, units * i / pieces.panel_chunks * cut.panel_unit);
    };
    kernels.gemm(call, first_row(row), first_row(row + 1), first_panel(panel),
                 first_panel(panel + 1));
  });
}

}  // namespace tandem
