#include "common/base/status.h"
#include "common/device/cuda/cuda_api.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<CudaApi>> OpenCuda() {
  return FailedPrecondition(
      "this program was built without CUDA: build it where nvcc is found (docs/guides/gpus.md), or "
      "run with trainer.device=cpu");
}

}  // namespace tandem
