// The kernels that a worker chose at its start and on which the bits of its results depend, beyond
// its numerics class: for each part, such as "linear [4096 x 1024]", the name of the kernel. Two
// workers must agree on every part that both have; a trainer has more parts than a rollout.
#pragma once

#include <map>
#include <string>

namespace tandem {

using KernelChoices = std::map<std::string, std::string>;

}  // namespace tandem
