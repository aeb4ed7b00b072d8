#include "common/ops/cpu/backward/backward_ops.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/base/check.h"
#include "common/base/status.h"
#include "common/ops/cpu/kernels/isa.h"

namespace tandem {
namespace {
// Columns of a task that sums over rows: whole cache lines.
constexpr int64_t kColumnGrain = 64;

// Runs body(first, last, thread) over columns, in whole grains.
template <typename Body>
void ParallelColumns(ThreadPool& pool, int64_t cols, const Body& body) {
  const int64_t tasks = (cols + kColumnGrain - 1) / kColumnGrain;
  pool.ParallelFor(tasks, [&](int64_t task, int) {
    body(task * kColumnGrain, std::min(cols, (task + 1) * kColumnGrain));
  });
}
}  // namespace

CpuBackwardOps::CpuBackwardOps(DType compute_dtype,
                               const KernelSet& kernels,
                               std::shared_ptr<ThreadPool> pool)
    : dtype_(compute_dtype),
      element_bytes_(static_cast<int64_t>(DTypeBytes(compute_dtype))),
      kernels_(kernels),
      pool_(std::move(pool)),
      thread_scratch_(static_cast<size_t>(pool_->threads())) {}

int64_t CpuBackwardOps::workspace_bytes() const {
  int64_t bytes = 0;
  for (const Workspace& scratch : thread_scratch_) bytes += scratch.capacity();
  for (const Workspace* scratch :
       {&weight_panels_, &in_panels_, &dout_panels_, &adapter_panels_, &rank_rows_, &rank_gradient_,
        &wide_b_, &dropped_, &kept_sums_, &row_values_, &dlogits_, &dhidden_}) {
    bytes += scratch->capacity();
  }
  return bytes;
}

void CpuBackwardOps::Round(FloatMatrix in, Matrix out) {
  pool_->ParallelRows(in.rows, kRowGrain, [&](int64_t first, int64_t last, int) {
    for (int64_t row = first; row < last; ++row) {
      kernels_.round(in.data + row * in.stride, in.cols, Row(out, row));
    }
  });
}

void CpuBackwardOps::AddRows(FloatMatrix in, const int32_t* rows, FloatMatrix out) {
  for (int64_t row = 0; row < in.rows; ++row) {
    const float* source = in.data + row * in.stride;
    float* target = out.data + rows[row] * out.stride;
    for (int64_t col = 0; col < in.cols; ++col) target[col] += source[col];
  }
}

void CpuBackwardOps::InverseRms(Matrix in, float eps) {
  float* inverse = row_values_.Get<float>(in.rows);
  pool_->ParallelRows(in.rows, kRowGrain, [&](int64_t first, int64_t last, int) {
    for (int64_t row = first; row < last; ++row) {
      inverse[row] = kernels_.inverse_rms(Row(in, row), eps, in.cols);
    }
  });
}

void CpuBackwardOps::RmsNormWeights(Matrix in, Matrix dout, float* dweight) {
  if (dweight == nullptr) return;
  RmsNormWeightCall call;
  call.in = in.data;
  call.in_stride = in.stride;
  call.dout = dout.data;
  call.dout_stride = dout.stride;
  call.inverse_rms = row_values_.Get<float>(in.rows);
  call.rows = in.rows;
  call.dweight = dweight;
  ParallelColumns(*pool_, in.cols,
                  [&](int64_t col0, int64_t col1) { kernels_.rms_norm_weight(call, col0, col1); });
}

void CpuBackwardOps::RmsNormRows(
    Matrix in, const void* weight, Matrix dout, FloatMatrix dresidual, Matrix din) {
  const float* inverse = row_values_.Get<float>(in.rows);
  pool_->ParallelRows(in.rows, kRowGrain, [&](int64_t first, int64_t last, int) {
    for (int64_t row = first; row < last; ++row) {
      RmsNormBackRow call;
      call.in = Row(in, row);
      call.weight = weight;
      call.inverse_rms = inverse[row];
      call.dout = Row(dout, row);
      if (dresidual.data != nullptr) {
        call.dresidual = dresidual.data + row * dresidual.stride;
      } else {
        call.din = Row(din, row);
      }
      kernels_.rms_norm_back(call, in.cols);
    }
  });
}

void CpuBackwardOps::RmsNorm(
    Matrix in, const void* weight, float eps, Matrix dout, FloatMatrix dresidual, float* dweight) {
  InverseRms(in, eps);
  RmsNormWeights(in, dout, dweight);
  RmsNormRows(in, weight, dout, dresidual, Matrix{});
}

void CpuBackwardOps::HeadRmsNorms(
    Matrix in, const AttentionShape& shape, const HeadNorms& norms, Matrix dout, Matrix din) {
  const auto head_of = [&](Matrix matrix, int64_t head) {
    matrix.data = static_cast<std::byte*>(matrix.data) + head * shape.head_dim * element_bytes_;
    matrix.cols = shape.head_dim;
    return matrix;
  };
  for (int64_t head = 0; head < shape.heads + shape.kv_heads; ++head) {
    const bool is_query = head < shape.heads;
    const Matrix part = head_of(in, head), gradient = head_of(dout, head);
    InverseRms(part, norms.eps);
    // Before the rows: din may be dout.
    RmsNormWeights(part, gradient, is_query ? norms.dq_weight : norms.dk_weight);
    RmsNormRows(part, is_query ? norms.q_weight : norms.k_weight, gradient, FloatMatrix{},
                head_of(din, head));
  }
}

void CpuBackwardOps::SiluMul(Matrix gate_up, Matrix dout, Matrix dgate_up) {
  pool_->ParallelRows(dout.rows, kRowGrain, [&](int64_t first, int64_t last, int) {
    for (int64_t row = first; row < last; ++row) {
      kernels_.silu_mul_back(Row(gate_up, row), Row(dout, row), dout.cols, Row(dgate_up, row));
    }
  });
}

void CpuBackwardOps::Embed(const int32_t* ids, FloatMatrix dx, float* dtable) {
  RowSumCall call;
  call.x = dx.data;
  call.x_stride = dx.stride;
  call.rows = dx.rows;
  call.ids = ids;
  call.sums = dtable;
  call.sums_stride = dx.cols;
  ParallelColumns(*pool_, dx.cols,
                  [&](int64_t col0, int64_t col1) { kernels_.add_float_rows(call, col0, col1); });
}

absl::StatusOr<std::unique_ptr<BackwardOps>> CreateCpuBackwardOps(
    DType compute_dtype, std::shared_ptr<ThreadPool> pool) {
  TANDEM_CHECK(pool != nullptr, "ops need a thread pool");
  TANDEM_ASSIGN_OR_RETURN(const KernelSet* kernels, ChooseKernels(compute_dtype));
  std::unique_ptr<BackwardOps> ops =
      std::make_unique<CpuBackwardOps>(compute_dtype, *kernels, std::move(pool));
  return ops;
}

}  // namespace tandem
