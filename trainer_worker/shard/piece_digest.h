// Digests of a policy's tensors from rows that are made for nothing else.
#pragma once

#include <cstdint>

#include <absl/status/status.h>

#include "common/weights/shard_ops.h"
#include "trainer_worker/shard/master_digests.h"
#include "trainer_worker/shard/weight_rows.h"

namespace tandem {

// Room for a range of rows of any of the plan's tensors in fp32: on a GPU, which is waited for
// after each, of a larger one.
int64_t PieceDigestScratchBytes(const ShardPlan& plan, const Device& device);

// Takes this rank's rows of one tensor, made in `scratch` by as many as fit. Errors as CopyRows and
// MasterDigests::Take.
absl::Status DigestPiece(PolicyRows& policy,
                         size_t tensor,
                         ShardOps& ops,
                         const MemoryRegion& scratch,
                         MasterDigests& digests);

}  // namespace tandem
