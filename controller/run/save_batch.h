// A step's samples, with all that is known of them, as one file that can be read alone.
#pragma once

#include <string>

#include <absl/status/status.h>

#include "controller/step/step_batch.h"
#include "controller/store/sample_store.h"
#include "controller/store/saved_batch.h"

namespace tandem {

// Writes the samples of the store's step, in order of id, and `info` to `path`
// (batch_file/batch_format.h), with the reward terms of the batch's records. Folders are made, a
// file that is there is replaced. One sample is in memory at a time. Errors as BatchWriter and
// SampleStore::Read.
absl::Status SaveBatch(const std::string& path,
                       const SavedBatchInfo& info,
                       const SampleStore& samples,
                       const StepBatch& batch);

// What `batch` itself knows of it; the rest is the caller's.
SavedBatchInfo InfoOf(const StepBatch& batch);

}  // namespace tandem
