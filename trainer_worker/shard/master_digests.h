// Digests of the tensors that the masters round to, taken from the masters themselves: what a
// publisher announces. Neither the rounded copy nor the gather nor the slots enter them, so a
// rollout that commits them proves that it holds the weights that were stepped.
#pragma once

#include <cstdint>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/comm/communicator.h"
#include "common/weights/digest.h"
#include "common/weights/shard_ops.h"
#include "trainer_worker/shard/shard_plan.h"
#include "trainer_worker/shard/weight_rows.h"

namespace tandem {

// Not thread-safe.
class MasterDigests {
 public:
  // `plan` outlives it.
  explicit MasterDigests(const ShardPlan* plan);
  // Of what they are in `dtype`, in place of the layout's.
  MasterDigests(const ShardPlan* plan, DType dtype);

  // Of elements [first, first + count) of this rank's shard, which are at `masters`. Together the
  // calls pass over the shard in ascending order; a call that starts a tensor's piece starts its
  // digest anew. Errors as ShardOps.
  absl::Status Take(ShardOps& ops, int64_t first, int64_t count, const float* masters);
  // Collective: of the whole tensors in that dtype, in the layout's order. Internal: not
  // every master was taken.
  absl::StatusOr<std::vector<Digest>> OfTensors(Communicator& communicator) const;

 private:
  const ShardPlan* const plan_;
  const DType dtype_;
  std::vector<DigestRun> runs_;  // of this rank's piece of each of plan_->tensors()
};

// Digests of a policy's tensors from rows that are made for nothing else.

// Room for a range of rows of any of the plan's tensors in fp32: on a GPU, which is waited for
// after each, of a larger one.
int64_t PieceDigestScratchBytes(const ShardPlan& plan, const Device& device);

// Takes this rank's rows of one tensor, made in `scratch` by as many as fit. Errors as CopyRows and
// MasterDigests::Take.
absl::Status DigestPiece(WeightRows& policy,
                         size_t tensor,
                         ShardOps& ops,
                         const MemoryRegion& scratch,
                         MasterDigests& digests);

}  // namespace tandem
