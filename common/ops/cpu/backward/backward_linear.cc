// Gradients of linear layers: both are products of matrices in panels.
#include <algorithm>

#include "common/base/check.h"
#include "common/ops/cpu/backward/backward_ops.h"
#include "common/ops/cpu/gemm_driver.h"
#include "common/ops/cpu/panels.h"

namespace tandem {
namespace {
// Panels rearranged by one task.
constexpr int64_t kPackPanels = 4;
// Rows that a weight gradient packs and sums at a time: the panels of both operands stay in L2. A
// multiple of 32, so that no block of k is split (2 would do for class seq).
constexpr int64_t kSumBlock = 512;

// Of a weight whose rows are summed over.
int64_t PaddedRows(int64_t rows) { return (rows + 15) / 16 * 16; }
}  // namespace

void CpuBackwardOps::LinearInput(Matrix dout, const LinearWeight& weight, Matrix din) {
  TANDEM_CHECK(dout.cols == weight.rows && din.cols == weight.cols && dout.rows == din.rows,
               "shapes of LinearInput do not match");
  GemmCall call;
  call.a = dout.data;
  call.a_stride = dout.stride;
  call.b = Transposed(weight.packed, weight.rows, weight.cols, weight_panels_);
  call.panel_bytes = PanelBytes(PaddedRows(weight.rows), element_bytes_);
  call.k = weight.rows;
  call.n = weight.cols;
  call.c = din.data;
  call.c_stride = din.stride;
  if (weight.adapter.parts > 0 && weight.adapter.dropout != nullptr) {
    return KeptInput(dout, weight, call, din);
  }
  AdapterSums adapters;
  if (weight.adapter.parts > 0) {
    // All parts' A below each other are one matrix here.
    adapters.rank = adapters.t_stride = weight.adapter.parts * weight.adapter.rank;
    adapters.t = RankGradient(dout, weight);
    adapters.b = Transposed(weight.adapter.a, adapters.rank, weight.cols, adapter_panels_);
    adapters.panel_bytes = PanelBytes(PaddedRows(adapters.rank), element_bytes_);
    adapters.parts = 1;
    adapters.part[0] = {0, weight.cols};
    call.adapters = &adapters;
  }
  RunGemm(*pool_, kernels_, call, dout.rows);
}

std::byte* CpuBackwardOps::Transposed(const std::byte* packed,
                                      int64_t rows,
                                      int64_t cols,
                                      Workspace& workspace) {
  std::byte* const panels = workspace.Bytes(PanelsBytes(cols, PaddedRows(rows), element_bytes_));
  pool_->ParallelRows((cols + 15) / 16, kPackPanels, [&](int64_t first, int64_t last, int) {
    TransposePackedWeight(packed, rows, cols, element_bytes_, first, last, panels);
  });
  return panels;
}

std::byte* CpuBackwardOps::PackColumns(Matrix matrix, Workspace& workspace) {
  std::byte* panels = workspace.Bytes(PanelsBytes(matrix.cols, matrix.rows, element_bytes_));
  const PanelSource source = {matrix.data, matrix.rows, matrix.cols, matrix.stride, element_bytes_};
  pool_->ParallelRows((matrix.cols + 15) / 16, kPackPanels, [&](int64_t first, int64_t last, int) {
    PackColumnPanels(source, first, last, panels);
  });
  return panels;
}

void CpuBackwardOps::AddWeightProduct(const std::byte* dout_panels,
                                      int64_t dout_cols,
                                      const std::byte* in_panels,
                                      int64_t in_cols,
                                      int64_t rows,
                                      float* dweight) {
  GemmCall call;
  call.a = dout_panels;
  call.a_panel_bytes = call.panel_bytes = PanelBytes(rows, element_bytes_);
  call.b = in_panels;
  call.k = rows;
  call.n = in_cols;
  call.c = dweight;
  call.c_stride = in_cols;
  call.output = GemmCall::Output::kAccumulate;
  RunGemm(*pool_, kernels_, call, dout_cols);
}

void CpuBackwardOps::LinearWeights(Matrix dout, Matrix in, float* dweight, float* dbias) {
  TANDEM_CHECK(dout.rows == in.rows, "shapes of LinearWeights do not match");
  if (dweight == nullptr) return;
  for (int64_t first = 0; first < in.rows; first += kSumBlock) {
    const int64_t rows = std::min(kSumBlock, in.rows - first);
    const Matrix dout_block = {Row(dout, first), rows, dout.cols, dout.stride};
    const Matrix in_block = {Row(in, first), rows, in.cols, in.stride};
    AddWeightProduct(PackColumns(dout_block, dout_panels_), dout.cols,
                     PackColumns(in_block, in_panels_), in.cols, rows, dweight);
  }
  if (dbias == nullptr) return;
  RowSumCall call;
  call.x = dout.data;
  call.x_stride = dout.stride;
  call.rows = dout.rows;
  call.sums = dbias;
  pool_->ParallelFor((dout.cols + 63) / 64, [&](int64_t task, int) {
    kernels_.add_rows(call, task * 64, std::min(dout.cols, (task + 1) * 64));
  });
}

}  // namespace tandem
