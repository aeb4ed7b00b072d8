// This rank's rows of a model that is not trained, with the values of its checkpoint.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "common/formats/hf_checkpoint.h"
#include "trainer_worker/shard/parameter_shard.h"
#include "trainer_worker/shard/shard_array.h"
#include "trainer_worker/shard/weight_rows.h"

namespace tandem {

// Counted under the tag weights; has no masters, gradients or moments. Not thread-safe.
class FrozenBase : public WeightRows {
 public:
  // `plan`, `compute` and `ledger` outlive the object. ResourceExhausted names the bytes.
  static absl::StatusOr<std::unique_ptr<FrozenBase>> Create(const ShardPlan* plan,
                                                            DType dtype,
                                                            const ShardCompute& compute,
                                                            Ledger* ledger);
  // Reads only this rank's rows from disk, a few at a time. Errors as HfCheckpoint, and the
  // device's.
  absl::Status Load(const HfCheckpoint& checkpoint);

  DType dtype() const { return dtype_; }
  // The address on the device of a row of this rank's piece of a tensor, dense, in dtype().
  const std::byte* Row(size_t tensor, int64_t row) const;

  const ShardPlan& plan() const override { return *plan_; }
  Device* device() const override { return compute_.device; }
  absl::Status CopyRows(size_t tensor, int64_t row, int64_t rows, DType dtype, void* out) override;

 private:
  FrozenBase(const ShardPlan* plan, DType dtype, const ShardCompute& compute, Ledger* ledger)
      : plan_(plan), dtype_(dtype), compute_(compute), staging_(compute.device, ledger) {}
  absl::Status LoadRows(const HfCheckpoint& checkpoint, size_t tensor, int64_t row, int64_t rows);

  const ShardPlan* const plan_;
  const DType dtype_;
  const ShardCompute compute_;
  std::unique_ptr<ShardArray> array_;
  HostStaging staging_;  // for copies from a file to a device
};

}  // namespace tandem
