// A run whose workers are placed somehow, and what it must end with wherever they are.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/e2e/recovery.h"

namespace tandem::testing {

inline constexpr int64_t kSteps = 3;

using Settings = std::map<std::string, std::string>;

// configs/tiny.yaml with the rig's model and data, and groups enough for three rollouts.
RigOptions Tiny(Settings more = {});

struct PlacedRun {
  Outcome outcome;
  std::vector<std::vector<std::string>> samples;  // of each step: tokens, log-probs, versions
  std::vector<double> probe_tokens;               // of each step
  std::string said;                               // by launcher and controller
};

// Of a rig whose processes have all ended.
PlacedRun ReadPlacedRun(ClusterRig& rig);
// Launches it first.
PlacedRun Finish(ClusterRig& rig);

// Equal tokens, log-probs, losses and weights.
void RequireSame(const PlacedRun& run, const PlacedRun& expected);

// Two trainers that share their devices with two rollouts, which sleep while they train.
PlacedRun RunColocated(Settings settings = {});
// That, made once in a program.
const PlacedRun& OnOneHost();

}  // namespace tandem::testing
