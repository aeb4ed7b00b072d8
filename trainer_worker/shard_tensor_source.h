// Full tensors out of the ranks' shards: what sync, check and export read.
#pragma once

#include <memory>

#include <absl/status/statusor.h>

#include "common/comm/communicator.h"
#include "common/device/memory_region.h"
#include "common/weights/weight_publisher.h"
#include "trainer_worker/parameter_shard.h"

namespace tandem {

// Collective: every rank calls for the same tensors or rows in the same order. Not thread-safe. A
// single rank hands out its shard itself; of several, each holds memory for the largest tensor from
// the first Gather on, and GatherRows needs none.
class ShardTensorSource : public TensorSource {
 public:
  static absl::StatusOr<std::unique_ptr<ShardTensorSource>> Create(const ParameterShard* shard,
                                                                   Communicator* communicator,
                                                                   Ledger* ledger);
  absl::StatusOr<const void*> Gather(const TensorPlace& place) override;
  absl::StatusOr<const void*> GatherRows(const TensorRows& rows, std::byte* dest) override;

 private:
  ShardTensorSource() = default;
  const ParameterShard* shard_ = nullptr;
  Communicator* communicator_ = nullptr;
  std::unique_ptr<MemoryRegion> buffer_;
};

}  // namespace tandem
