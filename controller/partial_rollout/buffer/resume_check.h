// Whether the groups that a checkpoint carries fit the run that resumes from it.
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

// The buffer that `checkpoint` has after `step` finished steps; nullopt: it has none. Errors as
// ReadSavedBuffer; DataLoss: token ids outside the vocabulary; InvalidArgument, naming the setting
// to restore: the buffer is of another step, tokenizer or training data (`rows`; empty: not
// compared), or was sampled with other settings. An empty buffer only has to be of that step.
absl::StatusOr<std::optional<SavedBuffer>> ReadFittingBuffer(const std::string& checkpoint,
                                                             const BufferOptions& options,
                                                             const DataRows& rows,
                                                             int64_t step);

// FailedPrecondition: `checkpoint` has groups that were not trained yet, and the run has partial
// rollout off, which would drop them. OK: it has none.
absl::Status CheckNoBuffer(const std::string& checkpoint);

// FailedPrecondition: a group is unfinished or has tokens of several weight versions, as partial
// rollout leaves them, and trainer.off_policy_steps carries whole groups of one version; or there
// are more than the `batch_groups` of the next step, and the others would be trained too late.
absl::Status CheckWholeGroups(const SavedBuffer& saved, int64_t batch_groups);

}  // namespace tandem
