// Which keys of partial rollout go together, and with which others.
#pragma once

#include <cstdint>
#include <vector>

#include "common/config/config.h"
#include "common/config/key_problem.h"

namespace tandem {

// Response tokens of a sample in one round, 0: no cap. rollout.partial.max_tokens_per_round, or by
// algorithm.partial_rollout_max_split=k ceil(data.max_response_length / k).
int64_t PartialCap(const v1::Config& config);

// Whether any key asks for partial rollout.
bool PartialEnabled(const v1::Config& config);

std::vector<KeyProblem> PartialProblems(const v1::Config& config);

// Which keys of model.lora go together, and with which others.
std::vector<KeyProblem> LoraProblems(const v1::Config& config);

}  // namespace tandem
