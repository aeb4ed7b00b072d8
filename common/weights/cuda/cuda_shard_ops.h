// A rank's shard in a GPU's memory.
#pragma once

#include <memory>

#include <absl/status/statusor.h>

#include "common/device/cuda/cuda_context.h"
#include "common/weights/shard_ops.h"

namespace tandem {

// `context` outlives it; work goes to its stream. Round returns before it is done, the others wait.
// Needs the kernels of the row ops and of the weights. ResourceExhausted.
absl::StatusOr<std::unique_ptr<ShardOps>> CreateCudaShardOps(CudaContext* context);

}  // namespace tandem
