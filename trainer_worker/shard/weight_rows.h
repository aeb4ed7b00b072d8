// Rows of this rank's shard of a policy: full training reads them from its masters and their
// rounded copy, LoRA computes them from a frozen base and adapters.
#pragma once

#include <cstddef>
#include <cstdint>

#include <absl/status/status.h>

#include "common/device/device.h"
#include "common/device/file_region.h"
#include "common/types/tensor_view.h"
#include "trainer_worker/shard/shard_plan.h"

namespace tandem {

// A shard that exists in the layout's dtype, in the order of its plan.
struct StoredShard {
  const std::byte* data = nullptr;  // null: rows exist only where CopyRows has put them
  FileRegion* file = nullptr;       // which holds `data`: its pages are held while a group is read
  bool offloaded = false;           // to a file, or to host memory from a GPU
};

// Not thread-safe: the engine thread's, whose ops compute the rows.
class WeightRows {
 public:
  virtual ~WeightRows() = default;

  virtual const ShardPlan& plan() const = 0;
  virtual Device* device() const = 0;
  virtual StoredShard stored() const { return {}; }
  // The memory of stored(), where a rollout may read it directly; null otherwise.
  virtual const ShareableMemory* shared() const { return nullptr; }
  // Copies rows [row, row + rows) of this rank's piece of plan().tensors()[tensor], dense and
  // rounded once to `dtype` (float32: without rounding), to `out`, which is memory of the device or
  // of TakeHostMemory; there they are complete after Device::Synchronize. Changes nothing else.
  virtual absl::Status CopyRows(
      size_t tensor, int64_t row, int64_t rows, DType dtype, void* out) = 0;
};

}  // namespace tandem
