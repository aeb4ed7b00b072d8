// to[i] += from[i], fp32, rounded once. Device addresses, aligned to 4 bytes. Kernel: add.cu.
#pragma once

#include <cstdint>

#include "common/device/cuda/launch.h"

namespace tandem {

void AddFloats(float* to, const float* from, int64_t count, CudaStream stream);

}  // namespace tandem
