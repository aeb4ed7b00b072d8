// This rank's rows of a model that is not trained, as its checkpoint has them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "common/tensor_file/checkpoint_dir.h"
#include "trainer_worker/policy_rows.h"
#include "trainer_worker/shard_array.h"

namespace tandem {

// Counted under the tag weights, without masters, gradients or moments. Not thread-safe but for
// what is const.
class BaseRows : public PolicyRows {
 public:
  // `plan`, `device` and `ledger` outlive it. ResourceExhausted names the bytes.
  static absl::StatusOr<std::unique_ptr<BaseRows>> Create(const ShardPlan* plan,
                                                          DType dtype,
                                                          Device* device,
                                                          Ledger* ledger);
  // Only this rank's rows are read from disk. Errors as HfCheckpoint.
  absl::Status Load(const HfCheckpoint& checkpoint);

  DType dtype() const { return dtype_; }
  // Where a row of this rank's piece of a tensor lies, dense, in dtype().
  const std::byte* Row(size_t tensor, int64_t row) const;

  const ShardPlan& plan() const override { return *plan_; }
  Device* device() const override { return device_; }
  absl::Status CopyRows(size_t tensor, int64_t row, int64_t rows, DType dtype, void* out) override;

 private:
  BaseRows(const ShardPlan* plan, DType dtype, Device* device)
      : plan_(plan), dtype_(dtype), device_(device) {}
  const ShardPlan* const plan_;
  const DType dtype_;
  Device* const device_;
  std::unique_ptr<ShardArray> array_;
};

}  // namespace tandem
