// Which settings of algorithm.rollout_correction make sense, alone and beside the actor's.
#pragma once

#include <string>
#include <vector>

#include "tandem/v1/config.pb.h"

namespace tandem {

struct KeyProblem {
  std::vector<std::string> keys;  // those a user would change
  std::string text;               // the reason and the remedy
};

std::vector<KeyProblem> RolloutCorrectionProblems(const v1::Config& config);

}  // namespace tandem
