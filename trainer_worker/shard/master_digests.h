// Digests that a publisher announces for the rounded tensors, computed from the fp32 masters
// themselves. The rounded copy, the gather and the slots have no part in them, so a rollout that
// commits these digests proves that it holds the weights that the optimizer stepped.
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
  // `plan` outlives the object.
  explicit MasterDigests(const ShardPlan* plan);
  // Digests the values as rounded to `dtype` instead of the layout's dtype.
  MasterDigests(const ShardPlan* plan, DType dtype);

  // Digests elements [first, first + count) of this rank's shard, stored at `masters`. Together the
  // calls must cover the shard in ascending order; a call that contains the start of a tensor's
  // piece restarts its digest. Errors as ShardOps.
  absl::Status Take(ShardOps& ops, int64_t first, int64_t count, const float* masters);
  // Collective: the digests of the complete tensors in that dtype, in the layout's order. Internal:
  // not every master was digested.
  absl::StatusOr<std::vector<Digest>> OfTensors(Communicator& communicator) const;

 private:
  const ShardPlan* const plan_;
  const DType dtype_;
  std::vector<DigestRun> runs_;  // of this rank's piece of each of plan_->tensors()
};

// Digests of tensors whose rows are computed (WeightRows::CopyRows). The rows are computed for the
// digests alone. Not thread-safe.
class RowDigests {
 public:
  // All pointers outlive the object. `dtype` is the dtype of the digested bytes. Reserves, under
  // the tag gather, memory for a range of rows of any tensor in fp32 (on a GPU for more rows, as
  // each range is followed by a wait), and maps it only during Take. ResourceExhausted: there is
  // not enough memory.
  static absl::StatusOr<std::unique_ptr<RowDigests>> Create(WeightRows* rows,
                                                            DType dtype,
                                                            ShardOps* ops,
                                                            Ledger* ledger);
  // Digests this rank's rows of every tensor; after the first call only of tensors for which
  // `may_change` returns true (indices in plan().tensors()). Errors as CopyRows and
  // MasterDigests::Take.
  absl::Status Take(const std::function<bool(size_t tensor)>& may_change);
  bool taken() const { return taken_; }
  // Collective; see MasterDigests::OfTensors.
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
