// OpenLt of programs whose kernels run on the emulator, whose memory no library can use.
#include "common/base/status.h"
#include "common/ops/cuda/linear/cublaslt_api.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<LtApi>> OpenLt() {
  return FailedPrecondition("the emulator has no cuBLASLt");
}

}  // namespace tandem
