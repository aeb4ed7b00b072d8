// The backward ops of the model, used by the trainer only. Deterministic: the same bits for the
// same input and any number of threads. As in the forward pass, a row of a gradient of activations
// depends on that row and the weights alone (Attention: on its span and the spans that share a
// prefix with it). Weight gradients accumulate over rows in ascending order in fp32; in bf16
// LinearWeights takes rows in pairs, the second of a pair first (vdpbf16ps), or, in class amx32, in
// blocks of 32 (docs/reference/numerics.md). Sums over rows are blocked, so the split into
// micro-batches changes last bits, within 1e-5 of a tensor's largest gradient. Gradients of
// activations are in the compute dtype, those of the residual stream in fp32.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <absl/status/statusor.h>

#include "common/ops/ops_types.h"

namespace tandem {

class CudaContext;
class ThreadPool;

// The q/k norms of a layer: their weights and where their gradients are added, all [head_dim].
struct HeadNorms {
  const void* q_weight = nullptr;
  const void* k_weight = nullptr;
  float eps = 0;
  float* dq_weight = nullptr;
  float* dk_weight = nullptr;
};

// Not thread-safe: called by one engine thread; spreads the work over the process's pool. A null
// dweight or dhead means that this gradient is not wanted.
class BackwardOps {
 public:
  virtual ~BackwardOps() = default;

  // Scratch memory held between calls; it grows with the largest call so far. 0 if the scratch is
  // that of the device's forward ops, which count it.
  virtual int64_t workspace_bytes() const = 0;

  // out = in rounded to the compute dtype (residual gradient → GEMM input).
  virtual void Round(FloatMatrix in, Matrix out) = 0;
  // out row rows[i] += in row i, ascending; a row may occur more than once. `rows` [in.rows].
  virtual void AddRows(FloatMatrix in, const int32_t* rows, FloatMatrix out) = 0;
  // din [M, K] = dout [M, N] W and, with adapters, + s (dout_i B_i) A_i for every part i (rounding:
  // docs/reference/numerics.md). With dropout each part's term is added only where the part kept
  // `in`, with the same scaling.
  virtual void LinearInput(Matrix dout, const LinearWeight& weight, Matrix din) = 0;
  // Gradients of the weight's adapters, from the input of its product and dout: dB_i += s dout_iᵀ
  // (in A_iᵀ), dA_i += s (dout_i B_i)ᵀ in. Each element is one chain over all rows that were ever
  // added, in ascending order, so that splitting a batch changes no bit. Does nothing without
  // adapters; this default is for ops that support none.
  virtual void AdapterWeights(Matrix dout,
                              Matrix in,
                              const LinearWeight& weight,
                              const LinearAdapterGradients& gradients);
  // dweight [N, K] += doutᵀ in; dbias [N] += column sums of dout, unless null. Dense, row-major.
  // With a null dweight, dbias is not computed either.
  virtual void LinearWeights(Matrix dout, Matrix in, float* dweight, float* dbias) = 0;
  // dresidual += d(in) of out = RmsNorm(in, weight); dweight [cols] += its gradient.
  virtual void RmsNorm(Matrix in,
                       const void* weight,
                       float eps,
                       Matrix dout,
                       FloatMatrix dresidual,
                       float* dweight) = 0;
  // The gradients of ForwardOps::HeadRmsNorms, for every head of q and of k at once: the first
  // (heads + kv_heads) * head_dim columns of `in` before the norms, of dout and of din. din is in
  // the compute dtype and may alias dout.
  virtual void HeadRmsNorms(
      Matrix in, const AttentionShape& shape, const HeadNorms& norms, Matrix dout, Matrix din) = 0;
  // dqkv [rows, qkv_cols] = gradient of the rotated q, k and of v. The q, k, v rows of a span are
  // in `qkv` (rotated), `out` is the forward's result. A span begins at position 0, or continues
  // the prefix it names; k and v of a prefix sum, in fp32, over the queries of its own span and
  // then of the spans that continue it, in their order.
  virtual void Attention(Matrix qkv,
                         const AttentionShape& shape,
                         const std::vector<AttentionSpan>& spans,
                         Matrix out,
                         Matrix dout,
                         Matrix dqkv) = 0;
  // Rotates the q and k columns of dqkv back, in place.
  virtual void Rope(Matrix dqkv,
                    const AttentionShape& shape,
                    const RopeTable& rope,
                    const std::vector<AttentionSpan>& spans) = 0;
  virtual void SiluMul(Matrix gate_up, Matrix dout, Matrix dgate_up) = 0;
  // dhidden and dhead [vocab, K] += gradient of sum_i grad_log_probs[i] * log_prob_i
  // + grad_entropy[i] * entropy_i (grad_entropy may be null). `stats` are what the forward's
  // TokenLogProbs gave for the same arguments. Recomputes the logits by row chunks.
  virtual void TokenLogProbs(Matrix hidden,
                             const LinearWeight& head,
                             int64_t vocab_limit,
                             const int32_t* targets,
                             const float* temperatures,
                             const RowStats* stats,
                             const float* grad_log_probs,
                             const float* grad_entropy,
                             Matrix dhidden,
                             float* dhead) = 0;
  // dtable [vocab, K] += rows of dx at ids, ascending.
  virtual void Embed(const int32_t* ids, FloatMatrix dx, float* dtable) = 0;
};

// Like CreateCpuForwardOps, with which it shares the pool.
absl::StatusOr<std::unique_ptr<BackwardOps>> CreateCpuBackwardOps(DType compute_dtype,
                                                                  std::shared_ptr<ThreadPool> pool);
// Like CreateCudaForwardOps.
absl::StatusOr<std::unique_ptr<BackwardOps>> CreateCudaBackwardOps(DType compute_dtype,
                                                                   CudaContext* context);

}  // namespace tandem
