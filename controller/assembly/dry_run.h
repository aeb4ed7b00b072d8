// --dry-run: everything that a run checks before it starts anything.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/config/config.h"
#include "controller/run/resume_point.h"
#include "controller/store/progress.h"

namespace tandem {

// Looks at run directory and checkpoints (ForeseeStart), loads model config, tokenizer, data and
// reward, plans the memory, compares pairs with cores or GPUs, and says what would be run and what
// was not looked at, all to `progress`. Takes no run directory, leaves nothing and starts nothing.
// False: the memory plan does not fit; a GPU's is not made here, and counts as fitting. Errors as
// CheckWritable, CheckNobodyThere, LoadRunInputs, PlanRun and ForeseeStart.
absl::StatusOr<bool> DryRun(const v1::Config& config, ProgressSink& progress);

// What a start would find in its run directory, for who starts nothing.

// Whether the folder can be written into: makes it where it is missing, and a file in it, and
// removes what it has made. Errors as MakeFolder and IoErrorCode, with the path.
absl::Status CheckWritable(const std::string& folder);

// AlreadyExists: a launcher or a controller is at work in `run_dir`. Reads their lock files; a
// folder without them is free.
absl::Status CheckNobodyThere(const std::string& run_dir);

// Lines for the user on the checkpoints there: where a run with these options would begin, with the
// warnings that it would give. Nothing is moved. Errors as ChooseResumePoint.
absl::StatusOr<std::vector<std::string>> ForeseeStart(const v1::Config& config,
                                                      const ResumeOptions& options);

}  // namespace tandem
