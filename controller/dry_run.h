// --dry-run: everything that a run checks before it starts anything.
#pragma once

#include <absl/status/status.h>

#include "common/config/config.h"

namespace tandem {

// Looks at run directory and checkpoints (run_dir_look.h), loads model config, tokenizer, data and
// reward, plans the memory, compares pairs with cores or GPUs, and says what would be run and what
// was not looked at. Takes no run directory, leaves nothing and starts nothing. Errors as
// CheckWritable, CheckNobodyThere, LoadRunInputs, PlanRun and ForeseeStart.
absl::Status DryRun(const v1::Config& config);

}  // namespace tandem
