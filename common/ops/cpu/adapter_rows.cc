#include "common/ops/cpu/adapter_rows.h"

#include <algorithm>

#include "common/memory/op_sizes.h"
#include "common/ops/cpu/dropped_rows.h"
#include "common/ops/cpu/gemm_driver.h"

namespace tandem {
namespace {

// Bytes of one panel of 16 rows of a packed weight.
int64_t WeightPanelBytes(int64_t cols, int64_t element_bytes) {
  return PackedWeightBytes(kPackedPanelRows, cols, element_bytes);
}

// Rows copied by one task.
constexpr int64_t kCopyGrain = 8;

void ProjectKept(ThreadPool& pool,
                 const KernelSet& kernels,
                 int64_t element_bytes,
                 Matrix in,
                 const LinearWeight& weight,
                 Workspace& dropped,
                 float* t) {
  const LinearAdapter& adapter = weight.adapter;
  const int64_t rank = adapter.rank, width = adapter.parts * rank;
  EachKept(pool, element_bytes, in, adapter, dropped, [&](int64_t first, int part, Matrix kept) {
    // Computes complete panels of A, starting at the panel in which the part begins: rows before
    // the part belong to the previous part, which is computed later and overwrites them.
    const int64_t panel = part * rank / kPackedPanelRows, col = panel * kPackedPanelRows;
    GemmCall call;
    call.a = kept.data;
    call.a_stride = kept.stride;
    call.panel_bytes = WeightPanelBytes(weight.cols, element_bytes);
    call.b = adapter.a + panel * call.panel_bytes;
    call.k = weight.cols;
    call.n = (part + 1) * rank - col;
    call.c = t + first * width + col;
    call.c_stride = width;
    call.output = GemmCall::Output::kFloat;
    RunGemm(pool, kernels, call, kept.rows);
  });
  const float scale = adapter.dropout->scale();
  pool.ParallelRows(in.rows, kCopyGrain, [&](int64_t first, int64_t last, int) {
    for (int64_t i = first * width; i < last * width; ++i) t[i] *= scale;
  });
}

}  // namespace

void EachKept(ThreadPool& pool,
              int64_t element_bytes,
              Matrix in,
              const LinearAdapter& adapter,
              Workspace& dropped,
              const std::function<void(int64_t first, int part, Matrix kept)>& visit) {
  Matrix kept = {nullptr, std::min(in.rows, kDroppedRows), in.cols, in.cols};
  auto* const out = dropped.Bytes(kept.rows * in.cols * element_bytes);
  kept.data = out;
  for (int64_t first = 0; first < in.rows; first += kDroppedRows) {
    kept.rows = std::min(kDroppedRows, in.rows - first);
    for (int part = adapter.parts - 1; part >= 0; --part) {
      if (adapter.part[part].rows == 0) continue;
      pool.ParallelRows(kept.rows, kCopyGrain, [&](int64_t begin, int64_t end, int) {
        for (int64_t row = begin; row < end; ++row) {
          CopyKept(
              *adapter.dropout, adapter.dropout->rows[first + row], adapter.part[part].module,
              static_cast<const std::byte*>(in.data) + (first + row) * in.stride * element_bytes,
              in.cols, element_bytes, out + row * in.cols * element_bytes);
        }
      });
      visit(first, part, kept);
    }
  }
}

void ProjectToRank(ThreadPool& pool,
                   const KernelSet& kernels,
                   int64_t element_bytes,
                   Matrix in,
                   const LinearWeight& weight,
                   Workspace& dropped,
                   float* t) {
  if (weight.adapter.dropout != nullptr) {
    return ProjectKept(pool, kernels, element_bytes, in, weight, dropped, t);
  }
  const int64_t width = weight.adapter.parts * weight.adapter.rank;
  GemmCall call;
  call.a = in.data;
  call.a_stride = in.stride;
  call.b = weight.adapter.a;
  call.panel_bytes = WeightPanelBytes(weight.cols, element_bytes);
  call.k = weight.cols;
  call.n = width;
  call.c = t;
  call.c_stride = width;
  call.output = GemmCall::Output::kFloat;
  RunGemm(pool, kernels, call, in.rows);
}

AdapterSums AdapterSumsOf(const LinearWeight& weight, const float* t, int64_t element_bytes) {
  const LinearAdapter& adapter = weight.adapter;
  AdapterSums sums;
  sums.t = t;
  sums.t_stride = adapter.parts * adapter.rank;
  sums.b = adapter.b;
  sums.panel_bytes = WeightPanelBytes(adapter.rank, element_bytes);
  sums.rank = adapter.rank;
  sums.scaling = adapter.scaling;
  sums.parts = adapter.parts;
  for (int i = 0; i < adapter.parts; ++i) {
    sums.part[i] = {adapter.part[i].row, adapter.part[i].row + adapter.part[i].rows};
  }
  return sums;
}

}  // namespace tandem
