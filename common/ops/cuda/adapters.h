// Separate adapters on a GPU: CudaForwardOps::Linear, CudaBackwardOps::LinearInput and
// AdapterWeights call these for a weight that has adapters, after the product with the weight.
#pragma once

#include "common/device/cuda/cuda_context.h"
#include "common/ops/cuda/adapter_kernels.h"
#include "common/ops/ops_types.h"

namespace tandem {

// A weight without adapters is left unchanged. Columns of matrices, rows of weights and the ends of
// parts are multiples of 8; A and B are dense, row-major. Not thread-safe: used by the engine
// thread. May be part of a graph. Errors are returned by CudaContext::Synchronize.
class CudaAdapters {
 public:
  // `context` must outlive the object.
  explicit CudaAdapters(CudaContext* context) : context_(context) {}

  // out += s (in A_iᵀ) B_iᵀ in the columns of every part i. Parts may have rows after the weight's
  // last one, which are ignored.
  void AddOutput(Matrix in, const LinearWeight& weight, Matrix out);
  // din += s (dout_i B_i) A_i of every part i.
  void AddInput(Matrix dout, const LinearWeight& weight, Matrix din);
  // See BackwardOps::AdapterWeights.
  void AddWeights(Matrix dout,
                  Matrix in,
                  const LinearWeight& weight,
                  const LinearAdapterGradients& gradients);

 private:
  // s (in A_iᵀ) or s (dout_i B_i), side by side for all parts; must not be accessed unless
  // launching().
  float* Rows(Matrix in, const LinearWeight& weight, float scale);
  float* RowGradients(Matrix dout, const LinearWeight& weight);

  CudaContext* const context_;
};

}  // namespace tandem
