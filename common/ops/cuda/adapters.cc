#include "common/ops/cuda/adapters.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/memory/cuda_scratch.h"

namespace tandem {
namespace {

constexpr int64_t kWord = 8;  // columns that kernels read at once

RankProduct ProductWith(RankMatrix matrix, const LinearWeight& weight, float scale) {
  const LinearAdapter& adapter = weight.adapter;
  RankProduct product = {.matrix = matrix,
                         .values = matrix == RankMatrix::kA ? adapter.a : adapter.b,
                         .parts = adapter.parts,
                         .rank = adapter.rank,
                         .part = {},
                         .scale = scale};
  TANDEM_CHECK(adapter.dropout == nullptr, "adapters drop inputs on a CPU only");
  TANDEM_CHECK(weight.rows % kWord == 0 && weight.cols % kWord == 0,
               "a weight with adapters has a multiple of 8 rows and columns on a GPU");
  for (int i = 0; i < adapter.parts; ++i) {
    const LinearAdapter::Part& part = adapter.part[i];
    TANDEM_CHECK(part.row % kWord == 0 && part.rows % kWord == 0,
                 "parts with adapters end at multiples of 8 rows on a GPU");
    product.part[i] = {part.row, std::clamp<int64_t>(weight.rows - part.row, 0, part.rows)};
  }
  return product;
}

Matrix Columns(Matrix matrix, int64_t first, int64_t cols) {
  matrix.data = static_cast<uint16_t*>(matrix.data) + first;
  matrix.cols = cols;
  return matrix;
}

int64_t BytesOf(int64_t rows, const LinearAdapter& adapter) {
  return RankRowsBytes(rows, adapter.parts, adapter.rank);
}

}  // namespace

float* CudaAdapters::Rows(Matrix in, const LinearWeight& weight, float scale) {
  const RankProduct product = ProductWith(RankMatrix::kA, weight, scale);
  auto* const t =
      reinterpret_cast<float*>(context_->Scratch(kRankRowsSlot, BytesOf(in.rows, weight.adapter)));
  if (context_->launching()) LaunchToRank(context_->stream(), product, in, t);
  return t;
}

float* CudaAdapters::RowGradients(Matrix dout, const LinearWeight& weight) {
  const RankProduct product = ProductWith(RankMatrix::kB, weight, weight.adapter.scaling);
  auto* const dt = reinterpret_cast<float*>(
      context_->Scratch(kRankGradientSlot, BytesOf(dout.rows, weight.adapter)));
  if (context_->launching()) LaunchToRank(context_->stream(), product, dout, dt);
  return dt;
}

void CudaAdapters::AddOutput(Matrix in, const LinearWeight& weight, Matrix out) {
  if (weight.adapter.parts == 0 || in.rows == 0) return;
  const float* const t = Rows(in, weight, 1.0f);
  if (!context_->launching()) return;
  LaunchFromRank(context_->stream(), ProductWith(RankMatrix::kB, weight, weight.adapter.scaling), t,
                 out);
}

void CudaAdapters::AddInput(Matrix dout, const LinearWeight& weight, Matrix din) {
  if (weight.adapter.parts == 0 || dout.rows == 0) return;
  const float* const dt = RowGradients(dout, weight);
  if (!context_->launching()) return;
  LaunchFromRank(context_->stream(), ProductWith(RankMatrix::kA, weight, 1.0f), dt, din);
}

void CudaAdapters::AddWeights(Matrix dout,
                              Matrix in,
                              const LinearWeight& weight,
                              const LinearAdapterGradients& gradients) {
  const LinearAdapter& adapter = weight.adapter;
  if (adapter.parts == 0 || in.rows == 0) return;
  const float* const t = Rows(in, weight, adapter.scaling);
  const float* const dt = RowGradients(dout, weight);
  if (!context_->launching()) return;
  const int64_t rank = adapter.rank, width = adapter.parts * rank;
  for (int i = 0; i < adapter.parts; ++i) {
    const LinearAdapter::Part& part = adapter.part[i];
    if (part.rows == 0) continue;
    LaunchRankSums(context_->stream(), Columns(dout, part.row, part.rows), t + i * rank, width,
                   rank, {.sums = gradients.b[i], .of_column = rank, .of_rank = 1});
    LaunchRankSums(context_->stream(), in, dt + i * rank, width, rank,
                   {.sums = gradients.a[i], .of_column = 1, .of_rank = in.cols});
  }
}

}  // namespace tandem
