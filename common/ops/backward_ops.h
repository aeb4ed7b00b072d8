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

  // The ops themselves, each with its contract: backward_ops.def.
#define TANDEM_BACKWARD_OP(op, parameters, arguments) virtual void op parameters = 0;
#include "common/ops/backward_ops.def"

  // Gradients of the weight's adapters, from the input of its product and dout: dB_i += s dout_iᵀ
  // (in A_iᵀ), dA_i += s (dout_i B_i)ᵀ in. Each element is one chain over all rows that were ever
  // added, in ascending order, so that splitting a batch changes no bit. Does nothing without
  // adapters; this default is for ops that support none.
  virtual void AdapterWeights(Matrix dout,
                              Matrix in,
                              const LinearWeight& weight,
                              const LinearAdapterGradients& gradients);
};

// Like CreateCpuForwardOps, with which it shares the pool.
absl::StatusOr<std::unique_ptr<BackwardOps>> CreateCpuBackwardOps(DType compute_dtype,
                                                                  std::shared_ptr<ThreadPool> pool);
// Like CreateCudaForwardOps.
absl::StatusOr<std::unique_ptr<BackwardOps>> CreateCudaBackwardOps(DType compute_dtype,
                                                                   CudaContext* context);

}  // namespace tandem
