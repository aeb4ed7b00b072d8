// Rules about keys of one part of the system, which CheckConfigValues runs, and what the keys of
// partial rollout mean together.
#pragma once

#include <cstdint>

#include "common/config/check.h"

namespace tandem {

// Response tokens that a sample may get in one round; 0: no cap. From
// rollout.partial.max_tokens_per_round or, with algorithm.partial_rollout_max_split=k,
// ceil(data.max_response_length / k).
int64_t PartialCap(const v1::Config& config);

// Whether any key asks for partial rollout.
bool PartialEnabled(const v1::Config& config);

// Whether a batch may have tokens of older weights than those of its step: with partial rollout, or
// trainer.off_policy_steps.
bool TrainsOlderTokens(const v1::Config& config);

// Checks trainer.off_policy_steps, rollout.partial, model.lora, algorithm.rollout_correction, and
// the numbers and places of workers, each with the keys that it depends on.
void CheckOneStepOff(const v1::Config& config, ConfigProblems& problems);
void CheckPartialRollout(const v1::Config& config, ConfigProblems& problems);
void CheckLora(const v1::Config& config, ConfigProblems& problems);
void CheckRolloutCorrection(const v1::Config& config, ConfigProblems& problems);
void CheckPlacement(const v1::Config& config, ConfigProblems& problems);

}  // namespace tandem
