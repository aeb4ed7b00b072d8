// --dry-run: everything that a run checks before it starts anything.
#pragma once

#include <absl/status/status.h>

#include "common/config/config.h"

namespace tandem {

// Loads model config, tokenizer, data and reward, plans the memory and says what would be run;
// takes no run directory and starts nothing. Errors as LoadRunInputs and PlanRun.
absl::Status DryRun(const v1::Config& config);

}  // namespace tandem
