// Whether the groups that a checkpoint carries can go on in a run.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "controller/data/prompt.h"
#include "controller/partial_rollout/buffer/buffered_sample.h"
#include "controller/partial_rollout/buffer/saved_buffer.h"

namespace tandem {

// A row of the training data, nullptr where there is none.
using DataRows = std::function<const Prompt*(uint64_t data_row)>;

// The pool in `checkpoint`, of `step` finished steps; nullopt: it has none. Errors as
// ReadSavedPool, and DataLoss: ids in it are none of the vocabulary. InvalidArgument, with what is
// to be set back: it is of another step, another tokenizer, other rows of the data (`rows`; empty:
// not looked at), or was sampled with other settings. An empty pool only has to be of the step.
absl::StatusOr<std::optional<SavedPool>> ReadFittingPool(const std::string& checkpoint,
                                                         const PoolOptions& options,
                                                         const DataRows& rows,
                                                         int64_t step);

// FailedPrecondition: `checkpoint` has groups that were not trained yet, and the run has partial
// rollout off, which would drop them. OK: it has none.
absl::Status CheckNoPool(const std::string& checkpoint);

}  // namespace tandem
