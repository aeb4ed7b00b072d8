// The device of tests that call kernels with pointers to what lies on the host's heap.
#pragma once

#include <memory>

#include "common/device/cuda/cuda_api.h"

namespace tandem::testing {

// The emulator, which computes at once and in host memory (test_cuda.cc); in tests/gpu the
// machine's GPU, whose calls block there and which reads the heap (pinned_heap.h). Aborts where
// there is none.
std::unique_ptr<CudaApi> OpenTestCuda();

}  // namespace tandem::testing
