#include "common/ops/cpu/backward/norms.h"

namespace tandem {

void NormBackward::InverseRms(Matrix in, float eps) {
  float* inverse = row_values_.Get<float>(in.rows);
  context_.pool->ParallelRows(in.rows, kRowGrain, [&](int64_t first, int64_t last, int) {
    for (int64_t row = first; row < last; ++row) {
      inverse[row] = context_.kernels.inverse_rms(context_.Row(in, row), eps, in.cols);
    }
  });
}

void NormBackward::RmsNormWeights(Matrix in, Matrix dout, float* dweight) {
  if (dweight == nullptr) return;
  RmsNormWeightCall call;
  call.in = in.data;
  call.in_stride = in.stride;
  call.dout = dout.data;
  call.dout_stride = dout.stride;
  call.inverse_rms = row_values_.Get<float>(in.rows);
  call.rows = in.rows;
  call.dweight = dweight;
  context_.ParallelColumns(in.cols, [&](int64_t col0, int64_t col1) {
    context_.kernels.rms_norm_weight(call, col0, col1);
  });
}

void NormBackward::RmsNormRows(
    Matrix in, const void* weight, Matrix dout, FloatMatrix dresidual, Matrix din) {
  const float* inverse = row_values_.Get<float>(in.rows);
  context_.pool->ParallelRows(in.rows, kRowGrain, [&](int64_t first, int64_t last, int) {
    for (int64_t row = first; row < last; ++row) {
      RmsNormBackRow call;
      call.in = context_.Row(in, row);
      call.weight = weight;
      call.inverse_rms = inverse[row];
      call.dout = context_.Row(dout, row);
      if (dresidual.data != nullptr) {
        call.dresidual = dresidual.data + row * dresidual.stride;
      } else {
        call.din = context_.Row(din, row);
      }
      context_.kernels.rms_norm_back(call, in.cols);
    }
  });
}

void NormBackward::RmsNorm(
    Matrix in, const void* weight, float eps, Matrix dout, FloatMatrix dresidual, float* dweight) {
  InverseRms(in, eps);
  RmsNormWeights(in, dout, dweight);
  RmsNormRows(in, weight, dout, dresidual, Matrix{});
}

void NormBackward::HeadRmsNorms(
    Matrix in, const AttentionShape& shape, const HeadNorms& norms, Matrix dout, Matrix din) {
  const auto head_of = [&](Matrix matrix, int64_t head) {
    matrix.data =
        static_cast<std::byte*>(matrix.data) + head * shape.head_dim * context_.element_bytes;
    matrix.cols = shape.head_dim;
    return matrix;
  };
  for (int64_t head = 0; head < shape.heads + shape.kv_heads; ++head) {
    const bool is_query = head < shape.heads;
    const Matrix part = head_of(in, head), gradient = head_of(dout, head);
    InverseRms(part, norms.eps);
    // Must run before the rows, because din may be dout.
    RmsNormWeights(part, gradient, is_query ? norms.dq_weight : norms.dk_weight);
    RmsNormRows(part, is_query ? norms.q_weight : norms.k_weight, gradient, FloatMatrix{},
                head_of(din, head));
  }
}

}  // namespace tandem
