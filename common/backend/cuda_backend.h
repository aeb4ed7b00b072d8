// The matrix products of a model, of which cuBLASLt's algorithms are proved at a worker's start.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <absl/status/statusor.h>

#include "common/backend/backend.h"
#include "common/device/cuda/cuda_api.h"
#include "common/model_spec/model_spec.h"
#include "common/ops/cuda/linear/linear.h"

namespace tandem {

// Every shape that the forward of `spec` asks CudaLinear for, and, where the worker
// `trains`, that its backward does: but for gradients of weights, which are sums over rows. Ids
// below `vocab_limit` alone have logits. A rollout's list is the beginning of its trainer's.
std::vector<LinearShape> ModelLinears(const ModelSpec& spec, int64_t vocab_limit, bool trains);

// A GPU as a backend.

// As PinDeviceLibraries.
void PinCudaLibraries();

// Makes device `index` the calling thread's. FailedPrecondition: there is no such device, or it
// lacks what the backend needs; the message names it. `linear` is for tests.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(std::unique_ptr<CudaApi> api,
                                                         int index,
                                                         CudaLinearOptions linear = {});

}  // namespace tandem
