// What a worker has decided at its start that the bits of its results depend on, beyond its
// numerics class: for each part, such as "linear [4096 x 1024]", what computes it. Workers must
// agree on every part that both have; a trainer has more parts than a rollout.
#pragma once

#include <map>
#include <string>

namespace tandem {

using NumericsChoices = std::map<std::string, std::string>;

}  // namespace tandem
