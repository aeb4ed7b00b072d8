#include "tests/common/ops/cuda/test_cuda.h"

#include "tests/emulator/emulated_cuda.h"

namespace tandem::testing {

std::unique_ptr<CudaApi> OpenTestCuda() { return std::make_unique<emulator::EmulatedCuda>(); }

}  // namespace tandem::testing
