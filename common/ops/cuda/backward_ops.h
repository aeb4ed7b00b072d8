// BackwardOps on a GPU: enqueues every op on the context's stream. Matrices, weights and gradients
// are in device memory; ids, spans and the factors of rows' gradients are in host memory.
#pragma once

#include <memory>
#include <vector>

#include "common/device/cuda/cuda_context.h"
#include "common/ops/backward_ops.h"
#include "common/ops/cuda/adapters.h"
#include "common/ops/cuda/attention/attention.h"
#include "common/ops/cuda/linear/linear.h"
#include "common/ops/cuda/rows/logits.h"
#include "common/ops/cuda/rows/rows.h"

namespace tandem {

// Uses scratch on the device as planned by common/memory/cuda_scratch.h.
class CudaBackwardOps final : public BackwardOps {
 public:
  // `context` must outlive the ops.
  CudaBackwardOps(CudaContext* context, std::shared_ptr<CudaLinear> linear);

  // It uses the context's scratch, which the forward ops on the same context count.
  int64_t workspace_bytes() const override { return 0; }

#define TANDEM_BACKWARD_OP(op, parameters, arguments) void op parameters override;
#include "common/ops/backward_ops.def"
  void AdapterWeights(Matrix dout,
                      Matrix in,
                      const LinearWeight& weight,
                      const LinearAdapterGradients& gradients) override;

 private:
  void Norm(const NormRows& norm, Matrix in, Matrix dout, const NormGradients& gradients);
  // Computes the gradients of some rows, whose parameters are on the device.
  void LogitsGradients(Matrix hidden,
                       const LinearWeight& head,
                       int64_t vocab_limit,
                       const HeadGroup& group,
                       const LogitsGradientRow* rows,
                       Matrix dlogits);
  void HeadGradients(Matrix hidden,
                     const LinearWeight& head,
                     int64_t vocab_limit,
                     const LogitsGradientRow* rows,
                     Matrix dhidden,
                     float* dhead);

  CudaContext* const context_;
  const std::shared_ptr<CudaLinear> linear_;
  CudaAttention attention_;
  CudaAdapters adapters_;
};

}  // namespace tandem
