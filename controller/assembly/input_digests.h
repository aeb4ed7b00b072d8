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

// Reads the data files and the weights wholly, on several threads, if their digests are not
// remembered; the tokenizer, its chat template
// and the ids that end a response have digests of what they mean, however their files are
// formatted. The reference model is the base model. Errors as DigestFiles and HfCheckpoint::Open.
absl::StatusOr<std::vector<PinnedInput>> PinInputs(const v1::Config& config,
                                                   const RunInputs& inputs,
                                                   RememberDigests remember);

}  // namespace tandem
