// This rank's rows of a policy, whatever they are made of: masters, a base with adapters; and where
// the shard lies that is gathered.
#pragma once

#include <cstddef>
#include <cstdint>

#include <absl/status/status.h>

#include "common/device/device.h"
#include "common/device/file_region.h"
#include "common/types/tensor_view.h"
#include "trainer_worker/shard/shard_plan.h"

namespace tandem {

class WeightRows {
 public:
  virtual ~WeightRows() = default;

  virtual const ShardPlan& plan() const = 0;
  virtual Device* device() const = 0;
  // Rows [row, row + rows) of this rank's piece of plan().tensors()[tensor], dense and rounded once
  // to `dtype` (float32: as they are), into `out`, which is the device's or TakeHostMemory's, where
  // they are there after Device::Synchronize. Nothing else is changed. The engine thread's, whose
  // ops make the rows.
  virtual absl::Status CopyRows(
      size_t tensor, int64_t row, int64_t rows, DType dtype, void* out) = 0;
};

// This rank's shard of a policy, in the plan's order and its layout's dtype.
struct ShardSource {
  const std::byte* data = nullptr;
  WeightRows* rows = nullptr;  // instead of `data`: they are made anew for each gather
  FileRegion* file = nullptr;  // that `data` lies in: a group's pages are held while it is gathered
  bool offloaded = false;      // in a file, or in host memory of a GPU
};

}  // namespace tandem
