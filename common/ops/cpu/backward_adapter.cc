// Gradients through adapters that are not merged: of y += s B (A x) they are, with t = A x and
// dt = s Bᵀ dy, dB = s dy tᵀ, dA = dt xᵀ and dx += Aᵀ dt. t and dt are fp32 and not rounded.
#include <algorithm>
#include <vector>

#include "common/ops/cpu/adapter_rows.h"
#include "common/ops/cpu/backward_ops.h"
#include "common/ops/packed_weight.h"

namespace tandem {
namespace {

// Rows of a product with one dimension of the rank that are worth a task: whole register blocks.
constexpr int64_t kRankGrain = 8;

// Rows of a packed matrix as fp32, dense.
void Widen(const LinearAdapter& adapter, DType dtype, int64_t first, int64_t last, float* wide) {
  const int64_t rank = adapter.rank;
  float* const to = wide + first * rank;
  if (dtype == DType::kFloat32) {
    return UnpackRows(adapter.b, rank, dtype, first, last - first, to);
  }
  std::vector<Bf16> narrow(static_cast<size_t>((last - first) * rank));
  UnpackRows(adapter.b, rank, dtype, first, last - first, narrow.data());
  std::transform(narrow.begin(), narrow.end(), to, FromBf16);
}

}  // namespace

float* CpuBackwardOps::RankGradient(Matrix dout, const LinearWeight& weight) {
  const LinearAdapter& adapter = weight.adapter;
  const int64_t rank = adapter.rank, width = adapter.parts * rank;
  float* const wide = wide_b_.Get<float>(weight.rows * rank);
  pool_->ParallelRows(weight.rows, kPackedPanelRows, [&](int64_t first, int64_t last, int) {
    Widen(adapter, dtype_, first, last, wide);
  });
  float* const gradient = rank_gradient_.Get<float>(dout.rows * width);
  for (int i = 0; i < adapter.parts; ++i) {
    const LinearAdapter::Part& part = adapter.part[i];
    RankProductCall call;
    call.x = Row(dout, 0, part.row);
    call.x_i = dout.stride;
    call.x_j = 1;
    call.y = wide + part.row * rank;
    call.y_stride = rank;
    call.terms = part.rows;  // none: zero
    call.cols = rank;
    call.out = gradient + i * rank;
    call.out_stride = width;
    call.scale = adapter.scaling;
    pool_->ParallelRows(dout.rows, kRankGrain, [&](int64_t first, int64_t last, int) {
      kernels_.rank_product(call, first, last);
    });
  }
  return gradient;
}

void CpuBackwardOps::AdapterWeights(Matrix dout,
                                    Matrix in,
                                    const LinearWeight& weight,
                                    const LinearAdapterGradients& gradients) {
  const LinearAdapter& adapter = weight.adapter;
  if (adapter.parts == 0 || in.rows == 0) return;
  const int64_t rank = adapter.rank, width = adapter.parts * rank;
  float* const t = rank_rows_.Get<float>(in.rows * width);
  ProjectToRank(*pool_, kernels_, element_bytes_, in, weight, t);
  pool_->ParallelRows(in.rows, kRankGrain, [&](int64_t first, int64_t last, int) {
    for (int64_t i = first * width; i < last * width; ++i) t[i] *= adapter.scaling;
  });
  const float* const dt = RankGradient(dout, weight);
  for (int i = 0; i < adapter.parts; ++i) {
    const LinearAdapter::Part& part = adapter.part[i];
    if (part.rows == 0) continue;
    RankProductCall b;  // dB_i += doutᵀ (s t)
    b.x = Row(dout, 0, part.row);
    b.x_i = 1;
    b.x_j = dout.stride;
    b.y = t + i * rank;
    b.y_stride = width;
    b.terms = in.rows;
    b.cols = rank;
    b.out = gradients.b[i];
    b.out_stride = rank;
    b.add = true;
    pool_->ParallelRows(part.rows, kRankGrain, [&](int64_t first, int64_t last, int) {
      kernels_.rank_product(b, first, last);
    });
    RankProductCall a;  // dA_i += dtᵀ in
    a.x = dt + i * rank;
    a.x_i = 1;
    a.x_j = width;
    a.y_stride = in.stride;
    a.terms = in.rows;
    a.out_stride = in.cols;
    a.add = true;
    // By columns: a rank has few rows.
    pool_->ParallelRows((in.cols + 15) / 16, 1, [&](int64_t first, int64_t last, int) {
      RankProductCall columns = a;
      columns.y = Row(in, 0, first * 16);
      columns.out = gradients.a[i] + first * 16;
      columns.cols = std::min(last * 16, in.cols) - first * 16;
      kernels_.rank_product_of_floats(columns, 0, rank);
    });
  }
}

}  // namespace tandem
