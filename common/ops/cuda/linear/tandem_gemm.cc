#include "common/ops/cuda/linear/tandem_gemm.h"

#include "common/ops/cuda/linear/gemm_kernels.h"

namespace tandem {

void TandemGemm::Run(const Gemm& gemm) {
  const GemmTile tile = ChooseTile(gemm.kind, gemm.m, gemm.n, context_->info().multiprocessors);
  cuda::LaunchGemm(gemm, tile, context_->stream());
}

}  // namespace tandem
