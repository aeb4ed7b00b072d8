// Digests of what a run reads, which its checkpoints record.
#pragma once

#include <vector>

#include <absl/status/statusor.h>

#include "common/config/config.h"
#include "controller/assembly/run_inputs.h"
#include "controller/data/pinned_inputs.h"

namespace tandem {

// Whether what was read is remembered in the run directory (DigestCache), which a dry run leaves
// alone.
enum class RememberDigests { kNo, kYes };

// Digests the complete data and weight files, on several threads, unless their digests are cached.
// Tokenizer, chat template and end-of-response ids are digested by content, so that the formatting
// of their files does not matter. The reference model is the base model. Errors as DigestFiles and
// HfCheckpoint::Open.
absl::StatusOr<std::vector<PinnedInput>> PinInputs(const v1::Config& config,
                                                   const RunInputs& inputs,
                                                   RememberDigests remember);

}  // namespace tandem
