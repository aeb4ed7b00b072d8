// Derives the input of the memory plan from the resolved configuration.
#pragma once

#include <cstdint>

#include "common/config/config.h"
#include "controller/plan/memory_plan.h"

namespace tandem {

// cluster.compute_threads; 0 means the cores that this process may use divided by the number of
// pairs, because a trainer and its rollout take turns.
int ComputeThreads(const v1::Config& config);

// Whether the device of a pair is a GPU. trainer.device=auto means the CPU, with a plan for the
// host's memory.
bool PlansForGpu(const v1::Config& config);

// `device_bytes`: memory of the device of one pair.
MemoryPlanInput MakeMemoryPlanInput(const ModelSpec& spec,
                                    const v1::Config& config,
                                    int64_t device_bytes);

}  // namespace tandem
