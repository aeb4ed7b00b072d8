#include "tests/emulator/emulated_cuda.h"
#include "tests/gpu/gpu.h"

namespace tandem::testing {

const char* const kProgramsFolder = "emulated";
const bool kEmulated = true;

absl::StatusOr<std::unique_ptr<CudaApi>> OpenGpu() {
  // Of a size that a test may fill: its pages are the host's.
  return std::make_unique<emulator::EmulatedCuda>(
      emulator::EmulatedCudaOptions{.total_bytes = int64_t{4} << 30, .late_streams = true});
}

}  // namespace tandem::testing
