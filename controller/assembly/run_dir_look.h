// What a start would find in its run directory, for who starts nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/config/config.h"
#include "controller/run/resume_point.h"

namespace tandem {

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
