#include "common/ops/cpu/backward/context.h"

#include <utility>

#include "common/ops/cpu/gemm_driver.h"

namespace tandem {

CpuBackwardContext::CpuBackwardContext(DType compute_dtype,
                                       const KernelSet& kernel_set,
                                       std::shared_ptr<ThreadPool> threads)
    : dtype(compute_dtype),
      element_bytes(static_cast<int64_t>(DTypeBytes(compute_dtype))),
      kernels(kernel_set),
      pool(std::move(threads)),
      thread_scratch(static_cast<size_t>(pool->threads())) {}

int64_t CpuBackwardContext::workspace_bytes() const {
  int64_t bytes = weight_panels.capacity() + in_panels.capacity() + dout_panels.capacity();
  for (const Workspace& scratch : thread_scratch) bytes += scratch.capacity();
  return bytes;
}

void CpuBackwardContext::Round(FloatMatrix in, Matrix out) const {
  pool->ParallelRows(in.rows, kRowGrain, [&](int64_t first, int64_t last, int) {
    for (int64_t row = first; row < last; ++row) {
      kernels.round(in.data + row * in.stride, in.cols, Row(out, row));
    }
  });
}

std::byte* CpuBackwardContext::PackColumns(Matrix matrix, Workspace& workspace) const {
  std::byte* panels = workspace.Bytes(PanelsBytes(matrix.cols, matrix.rows, element_bytes));
  const PanelSource source = {matrix.data, matrix.rows, matrix.cols, matrix.stride, element_bytes};
  pool->ParallelRows((matrix.cols + 15) / 16, kPackPanels, [&](int64_t first, int64_t last, int) {
    PackColumnPanels(source, first, last, panels);
  });
  return panels;
}

void CpuBackwardContext::AddWeightProduct(const std::byte* dout_columns,
                                          int64_t dout_cols,
                                          const std::byte* in_columns,
                                          int64_t in_cols,
                                          int64_t rows,
                                          float* dweight) const {
  GemmCall call;
  call.a = dout_columns;
  call.a_panel_bytes = call.panel_bytes = PanelBytes(rows, element_bytes);
  call.b = in_columns;
  call.k = rows;
  call.n = in_cols;
  call.c = dweight;
  call.c_stride = in_cols;
  call.output = GemmCall::Output::kAccumulate;
  RunGemm(*pool, kernels, call, dout_cols);
}

}  // namespace tandem
