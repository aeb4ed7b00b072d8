// Derives the input of the memory plan from the resolved configuration.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

#include "common/config/config.h"
#include "controller/plan/memory_plan.h"

namespace tandem {

// ComputeThreadsOf for the cores that this process may use.
ThreadsByRole ComputeThreads(const v1::Config& config);

// Whether the devices are GPUs. trainer.device=auto means the CPU, with a plan for the
// host's memory.
bool PlansForGpu(const v1::Config& config);

// The memory of one device, for a command: `flag` ("80GiB", its --device-memory) or, if that is
// empty, what `share_of_host` gives for the number of devices. InvalidArgument: the flag is no
// amount, or it is empty and the devices are GPUs.
absl::StatusOr<int64_t> PlannedDeviceBytes(const std::string& flag,
                                           const v1::Config& config,
                                           int64_t (*share_of_host)(int devices));

// `device_bytes`: memory of one device.
MemoryPlanInput MakeMemoryPlanInput(const ModelSpec& spec,
                                    const v1::Config& config,
                                    int64_t device_bytes);

}  // namespace tandem
