// Gradients through adapters that are not merged: of y += s B (A x) they are, with t = A x and
// dt = s Bᵀ dy, dB = s dy tᵀ, dA = dt xᵀ and dx += Aᵀ dt. t and dt are fp32 and not rounded. With
// dropout, drop(x) = c m∘x: t = c A (m∘x), dA = (c dt) (m∘x)ᵀ and dx += m∘(c Aᵀ dt).
#include <algorithm>
#include <vector>

#include "common/ops/adapter_dropout.h"
#include "common/ops/cpu/adapter_rows.h"
#include "common/ops/cpu/backward/backward_ops.h"
#include "common/ops/cpu/dropped_rows.h"
#include "common/ops/cpu/gemm_driver.h"
#include "common/ops/cpu/packed_weight.h"

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
  ProjectToRank(*pool_, kernels_, element_bytes_, in, weight, dropped_, t);
  ScaleRows(t, in.rows, width, adapter.scaling);
  float* const dt = RankGradient(dout, weight);
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
  }
  if (adapter.dropout == nullptr) {
    for (int i = 0; i < adapter.parts; ++i) {
      if (adapter.part[i].rows > 0) AddDownGradient(adapter, i, dt, in, gradients.a[i]);
    }
    return;
  }
  ScaleRows(dt, in.rows, width, adapter.dropout->scale());
  EachKept(*pool_, element_bytes_, in, adapter, dropped_, [&](int64_t first, int i, Matrix kept) {
    AddDownGradient(adapter, i, dt + first * width, kept, gradients.a[i]);
  });
}

void CpuBackwardOps::ScaleRows(float* values, int64_t rows, int64_t cols, float factor) {
  pool_->ParallelRows(rows, kRankGrain, [&](int64_t first, int64_t last, int) {
    for (int64_t i = first * cols; i < last * cols; ++i) values[i] *= factor;
  });
}

void CpuBackwardOps::AddDownGradient(
    const LinearAdapter& adapter, int part, const float* dt, Matrix in, float* gradient) {
  RankProductCall a;  // dA_i += dtᵀ in
  a.x = dt + part * adapter.rank;
  a.x_i = 1;
  a.x_j = adapter.parts * adapter.rank;
  a.y_stride = in.stride;
  a.terms = in.rows;
  a.out_stride = in.cols;
  a.add = true;
  // By columns: a rank has few rows.
  pool_->ParallelRows((in.cols + 15) / 16, 1, [&](int64_t first, int64_t last, int) {
    RankProductCall columns = a;
    columns.y = Row(in, 0, first * 16);
    columns.out = gradient + first * 16;
    columns.cols = std::min(last * 16, in.cols) - first * 16;
    kernels_.rank_product_of_floats(columns, 0, adapter.rank);
  });
}

void CpuBackwardOps::KeptInput(Matrix dout, const LinearWeight& weight, GemmCall call, Matrix din) {
  const LinearAdapter& adapter = weight.adapter;
  const int64_t rank = adapter.rank, width = adapter.parts * rank, cols = weight.cols;
  const float* const dt = RankGradient(dout, weight);
  std::byte* const down = adapter_panels_.Bytes(width * cols * element_bytes_);
  pool_->ParallelRows(width, 1, [&](int64_t first, int64_t last, int) {
    UnpackRows(adapter.a, cols, dtype_, first, last - first, down + first * cols * element_bytes_);
  });
  const int64_t block = std::min(dout.rows, kDroppedRows);
  float* const sums = kept_sums_.Get<float>(2 * block * cols);
  float* const delta = sums + block * cols;
  call.c = sums;
  call.c_stride = cols;
  call.output = GemmCall::Output::kFloat;
  for (int64_t first = 0; first < dout.rows; first += block) {
    const int64_t rows = std::min(block, dout.rows - first);
    call.a = Row(dout, first);
    RunGemm(*pool_, kernels_, call, rows);
    pool_->ParallelRows(rows, kRankGrain, [&](int64_t begin, int64_t end, int) {
      for (int i = 0; i < adapter.parts; ++i) {
        if (adapter.part[i].rows == 0) continue;
        RankProductCall product;
        product.x = dt + first * width + i * rank;
        product.x_i = width;
        product.x_j = 1;
        product.y = down + i * rank * cols * element_bytes_;
        product.y_stride = cols;
        product.terms = rank;
        product.cols = cols;
        product.out = delta;
        product.out_stride = cols;
        product.scale = adapter.dropout->scale();
        kernels_.rank_product_of_floats(product, begin, end);
        for (int64_t row = begin; row < end; ++row) {
          AddKept(*adapter.dropout, adapter.dropout->rows[first + row], adapter.part[i].module,
                  delta + row * cols, cols, sums + row * cols);
        }
      }
      for (int64_t row = begin; row < end; ++row) {
        kernels_.round(sums + row * cols, cols, Row(din, first + row));
      }
    });
  }
}

}  // namespace tandem
