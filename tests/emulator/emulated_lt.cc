// OpenLt of programs whose kernels run on the emulator: no library knows its memory.
#include "common/base/status.h"
#include "common/ops/cuda/linear/cublaslt_api.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<LtApi>> OpenLt() {
  return FailedPrecondition("the emulator has no cuBLASLt");
}

}  // namespace tandem
