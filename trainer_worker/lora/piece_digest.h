// Digests of a policy's tensors from rows that are made for nothing else.
#pragma once

#include <cstdint>

#include <absl/status/status.h>

#include "common/weights/shard_ops.h"
#include "trainer_worker/master_digests.h"
#include "trainer_worker/policy_rows.h"

namespace tandem {

// Room for any range of rows of the plan's tensors in fp32.
int64_t PieceDigestScratchBytes(const ShardPlan& plan);

// Takes this rank's rows of one tensor, range by range, made at `scratch`. Errors as CopyRows and
// MasterDigests::Take.
absl::Status DigestPiece(
    PolicyRows& policy, size_t tensor, ShardOps& ops, float* scratch, MasterDigests& digests);

}  // namespace tandem
