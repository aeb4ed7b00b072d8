// The rows and digests that a trainer sends in a weight sync, gathered from all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

#include "common/comm/communicator.h"
#include "trainer_worker/shard/parameter_shard.h"
#include "trainer_worker/shard/weight_rows.h"
#include "trainer_worker/weight_sync/weight_publisher.h"

namespace tandem {

// The arguments of AllGatherV for a range of rows.
struct PlacedRows {
  const std::byte* mine = nullptr;  // this rank's part of the range
  std::vector<int64_t> bytes;       // of every rank's part
};

// Computes this rank's part of `rows`, rounded to `dtype`, at its place in `dest`, which has room
// for the complete range. Errors as WeightRows.
absl::StatusOr<PlacedRows> PlaceMyRows(WeightRows& policy,
                                       const TensorRows& rows,
                                       DType dtype,
                                       std::byte* dest);

// Reads a stored shard in place; with a single rank it returns the shard's memory without a copy.
// Other rows are computed into `dest`. Allocates no memory. Collective: every rank calls for the
// same rows in the same order. Not thread-safe.
class GatheredWeightSource : public WeightSource {
 public:
  // Collective: computes the digests with which the tensors must arrive. They are computed
  // separately from the rows that are sent, so that a rollout refuses an update with wrong values
  // or with older adapters.
  using DigestTensors = std::function<absl::StatusOr<std::vector<Digest>>(Communicator&)>;

  // `rows`, `communicator` and the objects that `digest_tensors` refers to outlive the source.
  GatheredWeightSource(WeightRows* rows, DigestTensors digest_tensors, Communicator* communicator);
  // For a model all of whose weights are trained; the digests are those of its masters.
  GatheredWeightSource(ParameterShard* shard, Communicator* communicator)
      : GatheredWeightSource(
            shard,
            [shard](Communicator& ranks) { return shard->digests().OfTensors(ranks); },
            communicator) {}

  absl::StatusOr<std::vector<Digest>> Digests() override { return digest_tensors_(*communicator_); }
  absl::StatusOr<const void*> GatherRows(const TensorRows& rows, std::byte* dest) override;
  const SharedTensors* shared() const override {
    return shared_.shard.data == nullptr ? nullptr : &shared_;
  }

 private:
  WeightRows* const rows_;
  const DigestTensors digest_tensors_;
  Communicator* const communicator_;
  SharedTensors shared_;  // a single rank's shard, if a rollout may read it directly
};

}  // namespace tandem
