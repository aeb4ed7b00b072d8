// Full tensors out of the ranks' shards: what sync, check and export read.
#pragma once

#include <memory>

#include <absl/status/statusor.h>

#include "common/comm/communicator.h"
#include "common/device/memory_region.h"
#include "common/weights/weight_publisher.h"
#include "trainer_worker/parameter_shard.h"

namespace tandem {

// Gather is collective: every rank calls it for the same tensors in the same order. Not
// thread-safe. Holds memory for the largest tensor while it lives; a single rank needs none and
// hands out its shard itself.
class ShardTensorSource : public TensorSource {
 public:
  static absl::StatusOr<std::unique_ptr<ShardTensorSource>> Create(const ParameterShard* shard,
                                                                   Communicator* communicator,
                                                                   Ledger* ledger);
  absl::StatusOr<const void*> Gather(const TensorPlace& place) override;

 private:
  ShardTensorSource() = default;
  const ParameterShard* shard_ = nullptr;
  Communicator* communicator_ = nullptr;
  std::unique_ptr<MemoryRegion> buffer_;
};

}  // namespace tandem
