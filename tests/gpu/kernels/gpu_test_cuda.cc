#include "common/base/check.h"
#include "tests/common/ops/cuda/test_cuda.h"
#include "tests/gpu/gpu.h"

namespace tandem::testing {

std::unique_ptr<CudaApi> OpenTestCuda() {
  auto api = OpenGpu();
  TANDEM_CHECK(api.ok(), std::string(api.status().message()));
  return *std::move(api);
}

}  // namespace tandem::testing
