// ShardOps for a shard in a GPU's memory.
#pragma once

#include <memory>

#include <absl/status/statusor.h>

#include "common/device/cuda/cuda_context.h"
#include "common/weights/shard_ops.h"

namespace tandem {

// `context` must outlive it; work goes to its stream. Methods that return nothing only enqueue; the
// others wait for their result. Needs the kernels of the row ops and of the weights.
// ResourceExhausted.
absl::StatusOr<std::unique_ptr<ShardOps>> CreateCudaShardOps(CudaContext* context);

}  // namespace tandem
