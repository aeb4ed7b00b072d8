// Separate adapters on a GPU: CudaForwardOps::Linear, CudaBackwardOps::LinearInput and
// AdapterWeights call these for a weight that has adapters, after the product with the weight.
#pragma once

#include "common/device/cuda/cuda_context.h"
#include "common/ops/cuda/adapter_kernels.h"
#include "common/ops/ops_types.h"

namespace tandem {

// Nothing is done for a weight without adapters. Columns of matrices, rows of weights and the ends
// of parts are multiples of 8; A and B are dense, row-major. Not thread-safe: the engine thread's.
// May be part of a graph. Errors show in CudaContext::Synchronize.
class CudaAdapters {
 public:
  // `context` must outlive the object.
  explicit CudaAdapters(CudaContext* context) : context_(context) {}

  // out += s (in A_iᵀ) B_iᵀ in the columns of every part i. Parts may have rows behind the
  // weight's last, which are left out.
  void AddOutput(Matrix in, const LinearWeight& weight, Matrix out);
  // din += s (dout_i B_i) A_i of every part i.
  void AddInput(Matrix dout, const LinearWeight& weight, Matrix din);
  // As BackwardOps::AdapterWeights.
  void AddWeights(Matrix dout,
                  Matrix in,
                  const LinearWeight& weight,
                  const LinearAdapterGradients& gradients);

 private:
  // s (in A_iᵀ) and s (dout_i B_i), side by side for all parts; not to be used unless launching.
  float* Rows(Matrix in, const LinearWeight& weight, float scale);
  float* RowGradients(Matrix dout, const LinearWeight& weight);

  CudaContext* const context_;
};

}  // namespace tandem
