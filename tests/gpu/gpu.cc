#include "tests/gpu/gpu.h"

#include "common/base/status.h"

namespace tandem::testing {

const char* const kProgramsFolder = "bin";
const bool kEmulated = false;

absl::StatusOr<std::unique_ptr<CudaApi>> OpenGpu() {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<CudaApi> cuda, OpenCuda());
  TANDEM_ASSIGN_OR_RETURN(const int devices, cuda->DeviceCount());
  if (devices == 0) return FailedPrecondition("the driver sees no device");
  return cuda;
}

}  // namespace tandem::testing
