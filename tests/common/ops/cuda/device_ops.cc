#include "tests/common/ops/cuda/device_ops.h"

#include "common/base/check.h"
#include "tests/emulator/emulated_cuda.h"

namespace tandem::testing {

DeviceOps::DeviceOps() : api_(std::make_unique<emulator::EmulatedCuda>()) {
  absl::StatusOr<std::unique_ptr<CudaContext>> context = CudaContext::Create(api_.get(), 0);
  TANDEM_CHECK(context.ok(), "no emulated device");
  context_ = *std::move(context);
  absl::StatusOr<std::unique_ptr<ForwardOps>> forward =
      CreateCudaForwardOps(DType::kBFloat16, context_.get());
  TANDEM_CHECK(forward.ok(), std::string(forward.status().message()));
  forward_ = *std::move(forward);
  absl::StatusOr<std::unique_ptr<BackwardOps>> backward =
      CreateCudaBackwardOps(DType::kBFloat16, context_.get());
  TANDEM_CHECK(backward.ok(), std::string(backward.status().message()));
  backward_ = *std::move(backward);
}

emulator::EmulatedCuda& DeviceOps::cuda() { return static_cast<emulator::EmulatedCuda&>(*api_); }

}  // namespace tandem::testing
