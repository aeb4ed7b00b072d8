// --dry-run: everything that a run checks before it starts anything.
#pragma once

#include <absl/status/statusor.h>

#include "common/config/config.h"
#include "controller/store/progress.h"

namespace tandem {

// Looks at run directory and checkpoints (run_dir_look.h), loads model config, tokenizer, data and
// reward, plans the memory, compares pairs with cores or GPUs, and says what would be run and what
// was not looked at, all to `progress`. Takes no run directory, leaves nothing and starts nothing.
// False: the memory plan does not fit; a GPU's is not made here, and counts as fitting. Errors as
// CheckWritable, CheckNobodyThere, LoadRunInputs, PlanRun and ForeseeStart.
absl::StatusOr<bool> DryRun(const v1::Config& config, ProgressSink& progress);

}  // namespace tandem
