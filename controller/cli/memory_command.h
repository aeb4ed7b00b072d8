// `tandemctl memory`: what a step of a run did to the memory, beside its plan.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include <absl/status/status.h>

#include "controller/report/memory_text.h"

namespace tandem::v1 {
class GetStatusResponse;
class ListStepsResponse;
}  // namespace tandem::v1

namespace tandem {

struct MemoryOptions {
  int64_t step = 0;  // 0: the newest finished one
  std::string html;  // page to write; empty: none
  bool json = false;
};

// Of a running controller's answers: `steps` holds the step, or nothing where none is finished yet;
// then the workers' ledgers of this moment are shown.
StepMemory MemoryOf(const v1::GetStatusResponse& status, const v1::ListStepsResponse& steps);

// From the files of a run that has ended. NotFound: no run there, or no such step.
absl::StatusOr<StepMemory> MemoryOfRun(const std::string& run_dir, int64_t step);

absl::Status PrintMemory(const StepMemory& memory, const MemoryOptions& options, std::ostream& out);

}  // namespace tandem
