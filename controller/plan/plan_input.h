// From the resolved configuration to what the memory plan takes.
#pragma once

#include <cstdint>

#include "common/config/config.h"
#include "controller/plan/memory_plan.h"

namespace tandem {

// cluster.compute_threads, 0 resolved: the cores that this process may use divided by the pairs,
// because a trainer and its rollout take turns.
int ComputeThreads(const v1::Config& config);

// Whether the device of a pair is a GPU. trainer.device=auto is the CPU, and the plan goes by the
// host's memory, until a GPU has run the checks (docs/guides/gpus.md).
bool PlansForGpu(const v1::Config& config);

// `device_bytes`: memory of the device of one pair.
MemoryPlanInput MakeMemoryPlanInput(const ModelSpec& spec,
                                    const v1::Config& config,
                                    int64_t device_bytes);

}  // namespace tandem
