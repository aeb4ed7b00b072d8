// `tandemctl memory`: what a step of a run did to the memory, beside its plan.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

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

// `tandemctl plan`: what a configuration needs of its device, without data, weights or workers.
struct PlanOptions {
  std::string config;
  std::vector<std::string> overrides;
  std::string device_memory;  // "141GiB"; empty: this host's share, which a GPU has none of
  std::string html;           // page to write; empty: none
  bool json = false;
};

// "80GiB", "512 MiB", "80GB", "1073741824" (bytes); K, M, G, T with iB (powers of 1024) or B
// (powers of 1000). InvalidArgument names the text and the spellings; so does less than 1 MiB,
// where a unit was forgotten.
absl::StatusOr<int64_t> ParseBytes(const std::string& text);

struct PlanOutcome {
  // 0: the plan fits; 1: it does not; 64: flags or configuration; 65, 66: config.json is wrong or
  // a file is not there; others as of ExitCodeAt.
  int exit_code = 0;
  absl::Status error;  // not ok: there is no plan, or its page cannot be written
};

// Prints the plan and, if it does not fit, what to change.
PlanOutcome PlanCommand(const PlanOptions& options, std::ostream& out);

}  // namespace tandem
