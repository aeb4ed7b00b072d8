#include "common/ops/cpu/backward/linear.h"

#include <algorithm>
#include <vector>

#include "common/base/check.h"
#include "common/ops/adapter_dropout.h"
#include "common/ops/cpu/adapter_rows.h"
#include "common/ops/cpu/dropped_rows.h"
#include "common/ops/cpu/gemm_driver.h"
#include "common/ops/cpu/packed_weight.h"

namespace tandem {
namespace {
// Rows that a weight gradient packs and sums at a time: the panels of both operands stay in L2. A
// multiple of 32, so that no block of k is split (2 would do for class seq).
constexpr int64_t kSumBlock = 512;

// Padded rows of a weight whose rows are summed over.
int64_t PaddedRows(int64_t rows) { return (rows + 15) / 16 * 16; }
}  // namespace

int64_t LinearBackward::workspace_bytes() const {
  int64_t bytes = 0;
  for (const Workspace* scratch :
       {&adapter_panels_, &rank_rows_, &rank_gradient_, &wide_b_, &dropped_, &kept_sums_}) {
    bytes += scratch->capacity();
  }
  return bytes;
}

void LinearBackward::Input(Matrix dout, const LinearWeight& weight, Matrix din) {
  TANDEM_CHECK(dout.cols == weight.rows && din.cols == weight.cols && dout.rows == din.rows,
               "shapes of LinearInput do not match");
  GemmCall call;
  call.a = dout.data;
  call.a_stride = dout.stride;
  call.b = Transposed(weight.values, weight.rows, weight.cols, context_.weight_panels);
  call.panel_bytes = PanelBytes(PaddedRows(weight.rows), context_.element_bytes);
  call.k = weight.rows;
  call.n = weight.cols;
  call.c = din.data;
  call.c_stride = din.stride;
  if (weight.adapter.parts > 0 && weight.adapter.dropout != nullptr) {
    return KeptInput(dout, weight, call, din);
  }
  AdapterSums adapters;
  if (weight.adapter.parts > 0) {
    // A of all parts is one stacked matrix here.
    adapters.rank = adapters.t_stride = weight.adapter.parts * weight.adapter.rank;
    adapters.t = RankGradient(dout, weight);
    adapters.b = Transposed(weight.adapter.a, adapters.rank, weight.cols, adapter_panels_);
    adapters.panel_bytes = PanelBytes(PaddedRows(adapters.rank), context_.element_bytes);
    adapters.parts = 1;
    adapters.part[0] = {0, weight.cols};
    call.adapters = &adapters;
  }
  RunGemm(*context_.pool, context_.kernels, call, dout.rows);
}

std::byte* LinearBackward::Transposed(const std::byte* packed,
                                      int64_t rows,
                                      int64_t cols,
                                      Workspace& workspace) {
  std::byte* const panels =
      workspace.Bytes(PanelsBytes(cols, PaddedRows(rows), context_.element_bytes));
  context_.pool->ParallelRows((cols + 15) / 16, kPackPanels, [&](int64_t first, int64_t last, int) {
    TransposePackedWeight(packed, rows, cols, context_.element_bytes, first, last, panels);
  });
  return panels;
}

void LinearBackward::Weights(Matrix dout, Matrix in, float* dweight, float* dbias) {
  TANDEM_CHECK(dout.rows == in.rows, "shapes of LinearWeights do not match");
  if (dweight == nullptr) return;
  for (int64_t first = 0; first < in.rows; first += kSumBlock) {
    const int64_t rows = std::min(kSumBlock, in.rows - first);
    const Matrix dout_block = {context_.Row(dout, first), rows, dout.cols, dout.stride};
    const Matrix in_block = {context_.Row(in, first), rows, in.cols, in.stride};
    context_.AddWeightProduct(context_.PackColumns(dout_block, context_.dout_panels), dout.cols,
                              context_.PackColumns(in_block, context_.in_panels), in.cols, rows,
                              dweight);
  }
  if (dbias == nullptr) return;
  RowSumCall call;
  call.x = dout.data;
  call.x_stride = dout.stride;
  call.rows = dout.rows;
  call.sums = dbias;
  context_.pool->ParallelFor((dout.cols + 63) / 64, [&](int64_t task, int) {
    context_.kernels.add_rows(call, task * 64, std::min(dout.cols, (task + 1) * 64));
  });
}

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

float* LinearBackward::RankGradient(Matrix dout, const LinearWeight& weight) {
  const LinearAdapter& adapter = weight.adapter;
  const int64_t rank = adapter.rank, width = adapter.parts * rank;
  float* const wide = wide_b_.Get<float>(weight.rows * rank);
  context_.pool->ParallelRows(weight.rows, kPackedPanelRows, [&](int64_t first, int64_t last, int) {
    Widen(adapter, context_.dtype, first, last, wide);
  });
  float* const gradient = rank_gradient_.Get<float>(dout.rows * width);
  for (int i = 0; i < adapter.parts; ++i) {
    const LinearAdapter::Part& part = adapter.part[i];
    RankProductCall call;
    call.x = context_.Row(dout, 0, part.row);
    call.x_i = dout.stride;
    call.x_j = 1;
    call.y = wide + part.row * rank;
    call.y_stride = rank;
    call.terms = part.rows;  // 0 gives zero
    call.cols = rank;
    call.out = gradient + i * rank;
    call.out_stride = width;
    call.scale = adapter.scaling;
    context_.pool->ParallelRows(dout.rows, kRankGrain, [&](int64_t first, int64_t last, int) {
      context_.kernels.rank_product(call, first, last);
    });
  }
  return gradient;
}

void LinearBackward::AdapterWeights(Matrix dout,
                                    Matrix in,
                                    const LinearWeight& weight,
                                    const LinearAdapterGradients& gradients) {
  const LinearAdapter& adapter = weight.adapter;
  if (adapter.parts == 0 || in.rows == 0) return;
  const int64_t rank = adapter.rank, width = adapter.parts * rank;
  float* const t = rank_rows_.Get<float>(in.rows * width);
  ProjectToRank(*context_.pool, context_.kernels, context_.element_bytes, in, weight, dropped_, t);
  ScaleRows(t, in.rows, width, adapter.scaling);
  float* const dt = RankGradient(dout, weight);
  for (int i = 0; i < adapter.parts; ++i) {
    const LinearAdapter::Part& part = adapter.part[i];
    if (part.rows == 0) continue;
    RankProductCall b;  // dB_i += doutᵀ (s t)
    b.x = context_.Row(dout, 0, part.row);
    b.x_i = 1;
    b.x_j = dout.stride;
    b.y = t + i * rank;
    b.y_stride = width;
    b.terms = in.rows;
    b.cols = rank;
    b.out = gradients.b[i];
    b.out_stride = rank;
    b.add = true;
    context_.pool->ParallelRows(part.rows, kRankGrain, [&](int64_t first, int64_t last, int) {
      context_.kernels.rank_product(b, first, last);
    });
  }
  if (adapter.dropout == nullptr) {
    for (int i = 0; i < adapter.parts; ++i) {
      if (adapter.part[i].rows > 0) AddDownGradient(adapter, i, dt, in, gradients.a[i]);
    }
    return;
  }
  ScaleRows(dt, in.rows, width, adapter.dropout->scale());
  EachKept(*context_.pool, context_.element_bytes, in, adapter, dropped_,
           [&](int64_t first, int i, Matrix kept) {
             AddDownGradient(adapter, i, dt + first * width, kept, gradients.a[i]);
           });
}

void LinearBackward::ScaleRows(float* values, int64_t rows, int64_t cols, float factor) {
  context_.pool->ParallelRows(rows, kRankGrain, [&](int64_t first, int64_t last, int) {
    for (int64_t i = first * cols; i < last * cols; ++i) values[i] *= factor;
  });
}

void LinearBackward::AddDownGradient(
    const LinearAdapter& adapter, int part, const float* dt, Matrix in, float* gradient) {
  RankProductCall a;  // dA_i += dtᵀ in
  a.x = dt + part * adapter.rank;
  a.x_i = 1;
  a.x_j = adapter.parts * adapter.rank;
  a.y_stride = in.stride;
  a.terms = in.rows;
  a.out_stride = in.cols;
  a.add = true;
  // Divided by columns, as a rank has few rows.
  context_.pool->ParallelRows((in.cols + 15) / 16, 1, [&](int64_t first, int64_t last, int) {
    RankProductCall columns = a;
    columns.y = context_.Row(in, 0, first * 16);
    columns.out = gradient + first * 16;
    columns.cols = std::min(last * 16, in.cols) - first * 16;
    context_.kernels.rank_product_of_floats(columns, 0, adapter.rank);
  });
}

void LinearBackward::KeptInput(Matrix dout, const LinearWeight& weight, GemmCall call, Matrix din) {
  const LinearAdapter& adapter = weight.adapter;
  const int64_t rank = adapter.rank, width = adapter.parts * rank, cols = weight.cols;
  const float* const dt = RankGradient(dout, weight);
  std::byte* const down = adapter_panels_.Bytes(width * cols * context_.element_bytes);
  context_.pool->ParallelRows(width, 1, [&](int64_t first, int64_t last, int) {
    UnpackRows(adapter.a, cols, context_.dtype, first, last - first,
               down + first * cols * context_.element_bytes);
  });
  const int64_t block = std::min(dout.rows, kDroppedRows);
  float* const sums = kept_sums_.Get<float>(2 * block * cols);
  float* const delta = sums + block * cols;
  call.c = sums;
  call.c_stride = cols;
  call.output = GemmCall::Output::kFloat;
  for (int64_t first = 0; first < dout.rows; first += block) {
    const int64_t rows = std::min(block, dout.rows - first);
    call.a = context_.Row(dout, first);
    RunGemm(*context_.pool, context_.kernels, call, rows);
    context_.pool->ParallelRows(rows, kRankGrain, [&](int64_t begin, int64_t end, int) {
      for (int i = 0; i < adapter.parts; ++i) {
        if (adapter.part[i].rows == 0) continue;
        RankProductCall product;
        product.x = dt + first * width + i * rank;
        product.x_i = width;
        product.x_j = 1;
        product.y = down + i * rank * cols * context_.element_bytes;
        product.y_stride = cols;
        product.terms = rank;
        product.cols = cols;
        product.out = delta;
        product.out_stride = cols;
        product.scale = adapter.dropout->scale();
        context_.kernels.rank_product_of_floats(product, begin, end);
        for (int64_t row = begin; row < end; ++row) {
          AddKept(*adapter.dropout, adapter.dropout->rows[first + row], adapter.part[i].module,
                  delta + row * cols, cols, sums + row * cols);
        }
      }
      for (int64_t row = begin; row < end; ++row) {
        context_.kernels.round(sums + row * cols, cols, context_.Row(din, first + row));
      }
    });
  }
}

}  // namespace tandem
