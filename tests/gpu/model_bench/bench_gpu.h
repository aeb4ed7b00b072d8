// The GPU that is measured, as the workers use it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "common/backend/backend.h"
#include "common/device/cuda/cuda_api.h"
#include "tests/gpu/model_bench/device_peaks.h"

namespace tandem::testing {

struct BenchGpu {
  std::unique_ptr<Backend> backend;
  CudaDeviceInfo info;
  DevicePeaks peaks;

  Device* device() const { return backend->device(); }
};

// Device 0 of `cuda`, which it prints with its peaks. Errors as MakeCudaBackend.
absl::StatusOr<BenchGpu> OpenBenchGpu(std::unique_ptr<CudaApi> cuda);

// What everything else takes: the driver's context, kernels, cuBLASLt's workspace and proofs, and
// scratch beyond that of the head.
inline constexpr int64_t kOtherBytes = int64_t{3} << 30;

// Unavailable says how much `what` needs, and how much of the device is free.
absl::Status CheckFits(const BenchGpu& gpu, const std::string& what, int64_t bytes);

}  // namespace tandem::testing
