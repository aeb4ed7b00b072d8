// A GPU as a backend.
#pragma once

#include <memory>

#include <absl/status/statusor.h>

#include "common/backend/backend.h"
#include "common/device/cuda/cuda_api.h"
#include "common/ops/cuda/linear/linear.h"

namespace tandem {

// As PinDeviceLibraries.
void PinCudaLibraries();

// Makes device `index` the calling thread's. FailedPrecondition: there is no such device, or it
// lacks what the backend needs; the message names it. `linear` is for tests.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(std::unique_ptr<CudaApi> api,
                                                         int index,
                                                         CudaLinearOptions linear = {});

}  // namespace tandem
