// --dry-run: all checks that a run makes before it starts anything.
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

// As a start does, for training or for a weight check (weight_sync.check_only): checks run
// directory and checkpoints; loads model config, tokenizer, data and reward; plans the memory and
// what crosses between workers; compares workers with cores or GPUs. Reports to `progress` what a
// run would do and what was not checked. Does not lock the run directory, leaves no files and
// starts nothing. Returns false if the memory plan does not fit; a plan for GPUs is not made here
// and counts as fitting. Errors as CheckWritable, CheckDiskPlan, CheckNobodyThere, LoadRunInputs,
// CheckedTrainOptions, PlanRun, and PreviewStart or PreviewCheck.
absl::StatusOr<bool> DryRun(const v1::Config& config, ProgressSink& progress);

// Checks of a run directory. None leaves a change behind.

// Checks that the folder is writable: creates it if it is missing, creates a file in it, and
// removes both. Errors as MakeFolder and IoErrorCode, with the path.
absl::Status CheckWritable(const std::string& folder);

// AlreadyExists: a launcher or a controller uses `run_dir`. Reads their lock files; a folder
// without them is free.
absl::Status CheckNobodyThere(const std::string& run_dir);

struct StartPreview {
  // For the user, about the checkpoints: where the run would begin to train, and its warnings.
  std::vector<std::string> lines;
  int64_t staying_checkpoints = 0;  // StayingCheckpoints (resume_point.h)
};
// Where a run with these options would begin. Nothing is moved. Errors as ChooseResumePoint.
absl::StatusOr<StartPreview> PreviewStart(const v1::Config& config, const ResumeOptions& options);
// The same about which weights a check would look at. Errors as PeekResumePoint.
absl::StatusOr<std::vector<std::string>> PreviewCheck(const v1::Config& config);

}  // namespace tandem
