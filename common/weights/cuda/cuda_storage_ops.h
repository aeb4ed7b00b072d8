// StorageOps for a storage of weights in a GPU's memory.
#pragma once

#include <cstddef>
#include <memory>

#include <absl/status/statusor.h>

#include "common/device/cuda/cuda_context.h"
#include "common/weights/storage_ops.h"

namespace tandem {

// All arguments must outlive it; `storage` has layout->total_bytes() on the context's device. Work
// goes to the context's stream: StoreRows and Scramble only enqueue, the others wait.
// InvalidArgument: a layout in panels, which a GPU does not compute from. ResourceExhausted.
absl::StatusOr<std::unique_ptr<StorageOps>> CreateCudaStorageOps(const WeightLayout* layout,
                                                                 std::byte* storage,
                                                                 CudaContext* context);

}  // namespace tandem
