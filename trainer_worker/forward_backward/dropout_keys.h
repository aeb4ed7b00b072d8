// Which random numbers dropout in front of adapters takes: a key for every row of a micro-batch.
#pragma once

#include <cstdint>
#include <vector>

#include "common/types/sample.h"
#include "trainer_worker/forward_backward/packing.h"

namespace tandem {

// [batch.rows()], for AdapterDropout::rows. A response token's is a function of `seed`, `version`
// (of the weights that the pass trains, so that every mini-batch has its own), sample id and
// position; a prompt token's of the prompt's tokens instead of the sample, so that samples may
// share its rows or not. Neither packing nor ranks nor a resume shows.
std::vector<uint64_t> DropoutRowKeys(const PackedBatch& batch,
                                     const std::vector<Sample>& samples,
                                     uint64_t seed,
                                     int64_t version);

}  // namespace tandem
