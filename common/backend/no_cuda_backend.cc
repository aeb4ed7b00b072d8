// Of a program that is built without CUDA.
#include "common/backend/cuda_backend.h"
#include "common/base/status.h"

namespace tandem {

void PinCudaLibraries() {}

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(std::unique_ptr<CudaApi> /*api*/,
                                                         int /*index*/,
                                                         CudaLinearOptions /*linear*/) {
  return FailedPrecondition("this program was built without CUDA");
}

}  // namespace tandem
