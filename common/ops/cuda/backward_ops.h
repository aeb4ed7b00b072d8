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

  void Round(FloatMatrix in, Matrix out) override;
  void AddRows(FloatMatrix in, const int32_t* rows, FloatMatrix out) override;
  void LinearInput(Matrix dout, const LinearWeight& weight, Matrix din) override;
  void AdapterWeights(Matrix dout,
                      Matrix in,
                      const LinearWeight& weight,
                      const LinearAdapterGradients& gradients) override;
  void LinearWeights(Matrix dout, Matrix in, float* dweight, float* dbias) override;
  void RmsNorm(Matrix in,
               const void* weight,
               float eps,
               Matrix dout,
               FloatMatrix dresidual,
               float* dweight) override;
  void HeadRmsNorms(Matrix in,
                    const AttentionShape& shape,
                    const HeadNorms& norms,
                    Matrix dout,
                    Matrix din) override;
  void Attention(Matrix qkv,
                 const AttentionShape& shape,
                 const std::vector<AttentionSpan>& spans,
                 Matrix out,
                 Matrix dout,
                 Matrix dqkv) override;
  void Rope(Matrix dqkv,
            const AttentionShape& shape,
            const RopeTable& rope,
            const std::vector<AttentionSpan>& spans) override;
  void SiluMul(Matrix gate_up, Matrix dout, Matrix dgate_up) override;
  void TokenLogProbs(Matrix hidden,
                     const LinearWeight& head,
                     int64_t vocab_limit,
                     const int32_t* targets,
                     const float* temperatures,
                     const RowStats* stats,
                     const float* grad_log_probs,
                     const float* grad_entropy,
                     Matrix dhidden,
                     float* dhead) override;
  void Embed(const int32_t* ids, FloatMatrix dx, float* dtable) override;

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
