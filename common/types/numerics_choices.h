// The kernels and choices that determine the bits of a worker's results.
#pragma once

#include <map>
#include <string>

namespace tandem {

// The kernels that a worker chose at its start and on which the bits of its results depend, beyond
// its numerics class: for each part, such as "linear [4096 x 1024]", the name of the kernel.
// Two workers must agree on every part that both have; a trainer has more parts than a rollout.
using KernelChoices = std::map<std::string, std::string>;

struct WorkerNumerics {
  std::string numerics_class;
  std::string kernel_set;
  KernelChoices choices;
};

}  // namespace tandem
