#include "common/ops/cpu/adapter_rows.h"

#include "common/ops/cpu/gemm_driver.h"
#include "common/types/packed_bytes.h"

namespace tandem {
namespace {

// Of one panel of 16 rows of a packed weight.
int64_t WeightPanelBytes(int64_t cols, int64_t element_bytes) {
  return PackedWeightBytes(kPackedPanelRows, cols, element_bytes);
}

}  // namespace

void ProjectToRank(ThreadPool& pool,
                   const KernelSet& kernels,
                   int64_t element_bytes,
                   Matrix in,
                   const LinearWeight& weight,
                   float* t) {
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
