// What a GPU can do at most: by NVIDIA's data sheets, and copying, as measured.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

#include "common/device/cuda/cuda_api.h"
#include "common/device/device.h"

namespace tandem::testing {

struct DevicePeaks {
  std::string source;           // which figures these are
  double bytes_per_second = 0;  // of its memory; 0: not known
  double bf16_flops = 0;        // dense, by tensor cores with fp32 sums; 0: not known
};

// Of the device's name, or else of the first data-centre GPU of its compute capability, which
// `source` says. Nothing for GPUs that neither tells.
DevicePeaks NominalPeaks(const CudaDeviceInfo& info);

// Bytes per second that go through the device's memory while it copies `bytes` within itself, each
// of them read once and written once: 2 * bytes a copy. The best of some copies after one that
// warms up.
absl::StatusOr<double> CopyBandwidth(Device* device, int64_t bytes);

}  // namespace tandem::testing
