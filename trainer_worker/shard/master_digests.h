// Digests of the tensors that the masters round to, taken from the masters themselves: what a
// publisher announces. Neither the rounded copy nor the gather nor the slots enter them, so a
// rollout that commits them proves that it holds the weights that were stepped.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/comm/communicator.h"
#include "common/device/ledger.h"
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

// Digests of tensors whose rows are computed (WeightRows::CopyRows), from rows that are computed
// for nothing else. Not thread-safe.
class RowDigests {
 public:
  // All pointers outlive the object. `dtype`: the dtype whose bytes are digested. Reserves, under
  // the tag gather, room for a range of rows of any tensor in fp32 (more of them on a GPU, which is
  // waited for after each), and maps it only during Take. ResourceExhausted: there is no memory.
  static absl::StatusOr<std::unique_ptr<RowDigests>> Create(WeightRows* rows,
                                                            DType dtype,
                                                            ShardOps* ops,
                                                            Ledger* ledger);
  // Digests this rank's rows of every tensor; after the first call only of those for which
  // `may_change` holds, by index in plan().tensors(). Errors as CopyRows and MasterDigests::Take.
  absl::Status Take(const std::function<bool(size_t tensor)>& may_change);
  bool taken() const { return taken_; }
  // Collective; see MasterDigests.
  absl::StatusOr<std::vector<Digest>> OfTensors(Communicator& communicator) const {
    return digests_.OfTensors(communicator);
  }

 private:
  RowDigests(WeightRows* rows, DType dtype, ShardOps* ops)
      : rows_(rows), ops_(ops), digests_(&rows->plan(), dtype) {}
  absl::Status TakeTensor(size_t tensor);

  WeightRows* const rows_;
  ShardOps* const ops_;
  MasterDigests digests_;
  std::unique_ptr<MemoryRegion> scratch_;
  bool taken_ = false;
};

}  // namespace tandem
