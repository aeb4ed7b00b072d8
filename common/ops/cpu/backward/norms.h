// Gradients of RMS norms, of rows and of heads.
#pragma once

#include <cstdint>

#include "common/ops/backward_ops.h"
#include "common/ops/cpu/backward/context.h"

namespace tandem {

class NormBackward {
 public:
  explicit NormBackward(CpuBackwardContext& context) : context_(context) {}

  int64_t workspace_bytes() const { return row_values_.capacity(); }
  void RmsNorm(
      Matrix in, const void* weight, float eps, Matrix dout, FloatMatrix dresidual, float* dweight);
  void HeadRmsNorms(
      Matrix in, const AttentionShape& shape, const HeadNorms& norms, Matrix dout, Matrix din);

 private:
  // Computes row_values_, for the two functions below.
  void InverseRms(Matrix in, float eps);
  void RmsNormRows(Matrix in, const void* weight, Matrix dout, FloatMatrix dresidual, Matrix din);
  void RmsNormWeights(Matrix in, Matrix dout, float* dweight);

  CpuBackwardContext& context_;
  Workspace row_values_;  // one fp32 per row
};

}  // namespace tandem
