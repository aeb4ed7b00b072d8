// The ops of a GPU, and weights for them.
#pragma once

#include <memory>
#include <vector>

#include "common/device/cuda/cuda_context.h"
#include "tests/common/ops/cuda/kernel_fixture.h"

namespace tandem::emulator {
class EmulatedCuda;
}

namespace tandem::testing {

// A device for one test. On the emulator (device_ops.cc) host memory is device memory; on a GPU
// (tests/gpu/gpu_device_ops.cc) the ops copy what they read and write.
class DeviceOps {
 public:
  DeviceOps();
  CudaContext& context() { return *context_; }
  ForwardOps& forward() { return *forward_; }
  BackwardOps& backward() { return *backward_; }
  // The emulator; not on a GPU.
  emulator::EmulatedCuda& cuda();

 private:
  std::unique_ptr<CudaApi> api_;
  std::unique_ptr<CudaContext> context_;
  std::unique_ptr<ForwardOps> forward_;
  std::unique_ptr<BackwardOps> backward_;
};

// The weight as a GPU wants it: dense, row-major.
inline LinearWeight RowMajor(const TestWeight& weight) {
  LinearWeight view = weight.view();
  view.values = static_cast<const std::byte*>(weight.source.data());
  return view;
}

}  // namespace tandem::testing
