// weight_sync.check_only: synchronizes once, compares and reports; trains and records nothing.
#pragma once

#include <string>

#include <absl/status/status.h>

#include "controller/run/recovery.h"
#include "controller/step/step_context.h"

namespace tandem {

// The name of the JSON report in the run directory.
inline constexpr char kCheckReport[] = "weight_check.json";

// Brings trainers and rollouts to `checkpoint` (empty: the model) and compares the weights of every
// rollout with that checkpoint on disk, or with the trainers' weights where it has no HF export.
// Reports to context.progress, with a line for each rollout and the tensors that differ below it,
// and as JSON to `report_file`, whether or not the weights agree; an older report is removed first.
// DataLoss: a rollout's weights differ; other codes: a worker did not answer, nothing could be
// loaded, or the report could not be written.
absl::Status CheckOnly(const StepContext& context,
                       Recovery& recovery,
                       const std::string& checkpoint,
                       const std::string& report_file);

}  // namespace tandem
