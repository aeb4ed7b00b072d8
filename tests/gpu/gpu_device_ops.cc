// DeviceOps on a GPU, for the tests of tests/common/ops/cuda that need no emulator.
#include "common/base/check.h"
#include "tests/common/ops/cuda/device_ops.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/mirrored_ops.h"

namespace tandem::testing {

DeviceOps::DeviceOps() {
  auto api = OpenGpu();
  TANDEM_CHECK(api.ok(), std::string(api.status().message()));
  api_ = *std::move(api);
  auto context = CudaContext::Create(api_.get(), 0);
  TANDEM_CHECK(context.ok(), std::string(context.status().message()));
  context_ = *std::move(context);
  auto forward = CreateCudaForwardOps(DType::kBFloat16, context_.get());
  TANDEM_CHECK(forward.ok(), std::string(forward.status().message()));
  forward_ = std::make_unique<MirroredOps>(context_.get(), *std::move(forward));
}

}  // namespace tandem::testing
