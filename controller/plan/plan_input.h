// Derives the input of the memory plan from the resolved configuration.
#pragma once

#include <cstdint>

#include "common/config/config.h"
#include "controller/plan/memory_plan.h"

namespace tandem {

// ComputeThreadsOf for the cores that this process may use.
ThreadsByRole ComputeThreads(const v1::Config& config);

// Whether the devices are GPUs. trainer.device=auto means the CPU, with a plan for the
// host's memory.
bool PlansForGpu(const v1::Config& config);

// `device_bytes`: memory of one device.
MemoryPlanInput MakeMemoryPlanInput(const ModelSpec& spec,
                                    const v1::Config& config,
                                    int64_t device_bytes);

}  // namespace tandem
