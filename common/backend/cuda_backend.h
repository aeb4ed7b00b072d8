// The backend of a GPU, and the model's products for which cuBLASLt's algorithms are proved when a
// worker starts.
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

// Every shape that the forward pass of `spec` requests from CudaLinear and, if the worker `trains`,
// that its backward pass requests, except gradients of weights, which are sums over rows. Only ids
// below `vocab_limit` have logits. A rollout's list is the beginning of its trainer's list.
std::vector<LinearShape> ModelLinears(const ModelSpec& spec, int64_t vocab_limit, bool trains);

// See PinDeviceLibraries.
void PinCudaLibraries();

// Makes device `index` current on the calling thread. FailedPrecondition: there is no such device,
// or it lacks a feature that the backend needs; the message names it. `linear` is for tests.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(std::unique_ptr<CudaApi> api,
                                                         int index,
                                                         CudaLinearOptions linear = {});

}  // namespace tandem
