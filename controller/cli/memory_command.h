// `tandemctl memory`: the memory of a run's step, compared with its plan.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "controller/report/memory_text.h"

namespace tandem::v1 {
class GetStatusResponse;
class ListStepsResponse;
}  // namespace tandem::v1

namespace tandem {

struct MemoryOptions {
  int64_t step = 0;  // 0: the newest finished step
  std::string html;  // page to write; empty: none
  bool json = false;
};

// From the answers about a run: `steps` has the step, or is empty if none is finished yet,
// in which case the current ledgers of the workers are shown.
StepMemory MakeStepMemory(const v1::GetStatusResponse& status, const v1::ListStepsResponse& steps);

absl::Status PrintMemory(const StepMemory& memory, const MemoryOptions& options, std::ostream& out);

// `tandemctl plan`: the memory that a configuration needs, and what crosses between its workers,
// computed without data, weights or workers.
struct PlanOptions {
  std::string config;
  std::vector<std::string> overrides;
  // "141GiB"; empty: this host's memory divided by the devices; required for GPUs. How fast this
  // host copies memory is measured if it is empty.
  std::string device_memory;
  std::string html;  // page to write; empty: none
  bool json = false;
};

struct PlanOutcome {
  // 0: the plan fits; 1: it does not; 64: error in flags or configuration; 65, 66: config.json is
  // wrong, or a file is missing; others as ExitCodeAt.
  int exit_code = 0;
  absl::Status error;  // not OK: there is no plan, or its page cannot be written
};

// Prints the plan and, if it does not fit, suggested changes.
PlanOutcome PlanCommand(const PlanOptions& options, std::ostream& out);

}  // namespace tandem
