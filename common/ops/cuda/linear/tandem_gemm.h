// Matrix products by Tandem's own kernels (gemm.cu).
#pragma once

#include "common/device/cuda/cuda_context.h"
#include "common/ops/cuda/linear/gemm.h"

namespace tandem {

class TandemGemm final : public GemmEngine {
 public:
  // `context` must outlive the engine.
  explicit TandemGemm(CudaContext* context) : context_(context) {}
  void Run(const Gemm& gemm) override;

 private:
  CudaContext* const context_;
};

}  // namespace tandem
