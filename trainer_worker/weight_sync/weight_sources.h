// A range of rows of a full tensor, where every rank makes its own part of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

#include "common/comm/communicator.h"
#include "trainer_worker/shard/parameter_shard.h"
#include "trainer_worker/shard/weight_rows.h"
#include "trainer_worker/weight_sync/weight_publisher.h"

namespace tandem {

// What AllGatherV takes: this rank's part lies at its place in `dest` already.
struct PlacedRows {
  std::byte* mine = nullptr;
  std::vector<int64_t> bytes;  // of every rank's part
};

// Makes this rank's part of `rows`, rounded to `dtype`, at its place in `dest`, which has room for
// all of them. Errors as WeightRows.
absl::StatusOr<PlacedRows> PlaceMyRows(WeightRows& policy,
                                       const TensorRows& rows,
                                       DType dtype,
                                       std::byte* dest);

// Rows of full tensors out of the ranks' rounded shards: what a sync sends.

// Collective: every rank calls for the same rows in the same order. Not thread-safe. A single rank
// hands out its shard itself. Needs no memory.
class ShardTensorSource : public WeightSource {
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

// What a sync sends under LoRA: merged weights, or the base and the adapters beside it.

// A policy that knows what its tensors must arrive as, from calculations that what is sent has no
// part in: an update that carries something else, or older adapters, is refused by who compares.
class DigestedPolicy : public WeightRows {
 public:
  // Collective: of all tensors in the layout's dtype and order. FailedPrecondition: adapters were
  // not gathered.
  virtual absl::StatusOr<std::vector<Digest>> Digests(Communicator& communicator) const = 0;
};

// Collective: every rank calls for the same rows in the same order. Not thread-safe. Each rank
// makes its rows where they are sent from. Needs no memory.
class LoraTensorSource : public WeightSource {
 public:
  // Both outlive it.
  LoraTensorSource(DigestedPolicy* policy, Communicator* communicator)
      : policy_(policy), communicator_(communicator) {}
  absl::StatusOr<std::vector<Digest>> Digests() override {
    return policy_->Digests(*communicator_);
  }
  absl::StatusOr<const void*> GatherRows(const TensorRows& rows, std::byte* dest) override;

 private:
  DigestedPolicy* const policy_;
  Communicator* const communicator_;
};

}  // namespace tandem
