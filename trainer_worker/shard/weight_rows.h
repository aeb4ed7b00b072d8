// Rows of this rank's shard of a policy. Full training reads them from its masters and their
// rounded copy; LoRA computes them from a frozen base and adapters.
#pragma once

#include <cstddef>
#include <cstdint>

#include <absl/status/status.h>

#include "common/device/device.h"
#include "common/device/file_region.h"
#include "common/types/tensor_view.h"
#include "trainer_worker/shard/shard_plan.h"

namespace tandem {

// A shard that is stored in the layout's dtype, in the order of its plan.
struct StoredShard {
  const std::byte* data = nullptr;  // null: rows are not stored, only computed by CopyRows
  // The file that holds `data`, whose pages the process holds only while a group is read; null: in
  // memory.
  FileRegion* file = nullptr;
  bool offloaded = false;  // to a file, or from a GPU to host memory
};

// Not thread-safe: used by the engine thread, whose ops compute the rows.
class WeightRows {
 public:
  virtual ~WeightRows() = default;

  virtual const ShardPlan& plan() const = 0;
  virtual Device* device() const = 0;
  virtual StoredShard stored() const { return {}; }
  // The memory of stored() if a rollout may read it directly, else null.
  virtual const ShareableMemory* shared() const { return nullptr; }
  // Copies rows [row, row + rows) of this rank's piece of plan().tensors()[tensor] to `out`, dense
  // and rounded once to `dtype` (float32: without rounding). `out` is memory of the device or of
  // TakeHostMemory; the rows are complete there after Device::Synchronize. Changes no other state.
  virtual absl::Status CopyRows(
      size_t tensor, int64_t row, int64_t rows, DType dtype, void* out) = 0;
};

}  // namespace tandem
