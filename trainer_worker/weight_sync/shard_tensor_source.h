// Rows of full tensors out of the ranks' rounded shards: what a sync sends.
#pragma once

#include <vector>

#include <absl/status/statusor.h>

#include "common/comm/communicator.h"
#include "trainer_worker/shard/parameter_shard.h"
#include "trainer_worker/weight_sync/weight_publisher.h"

namespace tandem {

// Collective: every rank calls for the same rows in the same order. Not thread-safe. A single rank
// hands out its shard itself. Needs no memory.
class ShardTensorSource : public PublishSource {
 public:
  // Both outlive it.
  ShardTensorSource(const ParameterShard* shard, Communicator* communicator);
  // Of the masters (master_digests.h): the rounded copy, which GatherRows reads, has no part in it.
  absl::StatusOr<std::vector<Digest>> Digests() override;
  absl::StatusOr<const void*> GatherRows(const TensorRows& rows, std::byte* dest) override;
  const SharedTensors* shared() const override {
    return shared_.shard.data == nullptr ? nullptr : &shared_;
  }

 private:
  const ParameterShard* const shard_;
  Communicator* const communicator_;
  SharedTensors shared_;  // a single rank's
};

}  // namespace tandem
