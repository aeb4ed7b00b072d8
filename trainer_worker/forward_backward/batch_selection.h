// The tokens that a loss selects among all of a mini-batch (losses/token_selection.h), by
// micro-batch.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_worker/forward_backward/mini_batch.h"
#include "trainer_worker/forward_backward/packing.h"

namespace tandem {

// One entry per score of each micro-batch: 1 where selected.
using BatchSelection = std::vector<std::vector<uint8_t>>;

// Collective: the log-probs of a micro-batch under the current weights. A rank calls it for all of
// its micro-batches or for none, as all ranks do.
using ScoreBatch = std::function<absl::StatusOr<std::vector<float>>(const PackedBatch& batch)>;

// Collective. Without a selection: no entries at all. Fresh tokens have their old log-probs; if any
// token of any rank is not fresh, `score` runs once for every micro-batch.
absl::StatusOr<BatchSelection> SelectInBatches(const std::vector<PackedBatch>& batches,
                                               const std::vector<Sample>& samples,
                                               const MiniBatchRequest& request,
                                               const ScoreBatch& score,
                                               Communicator& communicator);

}  // namespace tandem
