// weight_sync.check_only: sync once, compare, report; nothing is trained, nothing is recorded.
#pragma once

#include <string>

#include <absl/status/status.h>

#include "controller/run/recovery.h"
#include "controller/step/step_context.h"

namespace tandem {

// The report as JSON, in the run directory.
inline constexpr char kCheckReport[] = "weight_check.json";

// Brings trainers and rollouts to `checkpoint` (empty: the model) and compares what every rollout
// holds with that checkpoint on disk, or with the trainers where it has no HF export. The report
// goes to context.progress, a rollout a line and the tensors that differ below it, and as JSON to
// `report_file`, whatever it says; an older one there is removed first. DataLoss: a rollout holds
// something else; other codes: a worker did not answer, nothing could be loaded, or the report not
// be written.
absl::Status CheckOnly(const StepContext& context,
                       Recovery& recovery,
                       const std::string& checkpoint,
                       const std::string& report_file);

}  // namespace tandem
