// Which keys of model.lora go together, and with which others.
#pragma once

#include <vector>

#include "common/config/config.h"
#include "common/config/key_problem.h"

namespace tandem {

std::vector<KeyProblem> LoraProblems(const v1::Config& config);

}  // namespace tandem
