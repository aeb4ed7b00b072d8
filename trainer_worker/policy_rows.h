// This rank's rows of a policy, whatever they are made of: masters, a base with adapters.
#pragma once

#include <cstddef>
#include <cstdint>

#include <absl/status/status.h>

#include "common/device/device.h"
#include "common/types/tensor_view.h"
#include "trainer_worker/shard_plan.h"

namespace tandem {

class PolicyRows {
 public:
  virtual ~PolicyRows() = default;

  virtual const ShardPlan& plan() const = 0;
  virtual Device* device() const = 0;
  // Rows [row, row + rows) of this rank's piece of plan().tensors()[tensor], dense and rounded once
  // to `dtype` (float32: as they are), into `out`, which is the device's or TakeHostMemory's, where
  // they are there after Device::Synchronize. Nothing else is changed. The engine thread's, whose
  // ops make the rows.
  virtual absl::Status CopyRows(
      size_t tensor, int64_t row, int64_t rows, DType dtype, void* out) = 0;
};

}  // namespace tandem
