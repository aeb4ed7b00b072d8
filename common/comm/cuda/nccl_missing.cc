// Linked where the build found no nccl.h.
#include "common/base/status.h"
#include "common/comm/cuda/nccl_api.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<NcclApi>> OpenNccl() {
  return FailedPrecondition("this program was built without NCCL's header (docs/guides/gpus.md)");
}

}  // namespace tandem
