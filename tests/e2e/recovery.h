// The result that a run must have, whatever happened to its processes.
#pragma once

#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "tests/support/cluster_rig.h"

namespace tandem::testing {

struct Outcome {
  std::string weights;                        // of the last checkpoint
  std::map<int64_t, nlohmann::json> metrics;  // of each step, without times
  std::map<int64_t, nlohmann::json> evaluations;
};

// The outcome of a finished run of `steps` steps.
Outcome OutcomeOf(const ClusterRig& rig, int64_t steps);

// That it has `steps` steps, in all of which trainer and rollout agreed on every log-prob's bits,
// gradients that were not all zero, and weights at the end.
void RequireLearned(const Outcome& outcome, int64_t steps);

// That the progress lines of a run say "N of N token log-probs identical" of each of `steps` steps,
// N being `least` or more. Returns the sum of N.
int64_t RequireIdentical(const std::string& console, int64_t steps, int64_t least);

// Two pairs and three steps in which nobody dies.
Outcome RunUndisturbed(const RigOptions& options);
// RunUndisturbed of the default options, computed once.
const Outcome& Undisturbed();

struct Fault {
  std::string role;
  int rank;
  std::string point;  // common/process/fault_injection.h
  int nth;
};

// Launches two pairs with `options`, kills the process at the fault, and requires that the run goes
// on to `expected` with one restart, exit code 0 and nobody left. Returns what the controller said.
std::string RequireRecovery(const Fault& fault, const RigOptions& options, const Outcome& expected);
// The same with settings that do not change the outcome.
std::string RequireRecovery(const Fault& fault,
                            const std::map<std::string, std::string>& config = {});

}  // namespace tandem::testing
