// Which settings of algorithm.rollout_correction make sense, alone and beside the actor's.
#pragma once

#include <vector>

#include "common/config/config.h"
#include "common/config/key_problem.h"

namespace tandem {

std::vector<KeyProblem> RolloutCorrectionProblems(const v1::Config& config);

}  // namespace tandem
