// Suggests changes to a configuration that does not fit its device.
#pragma once

#include <cstdint>

#include "common/config/config.h"
#include "common/model_spec/model_spec.h"
#include "controller/plan/memory_plan.h"

namespace tandem {

// The source of a device's memory: a GPU, or a share of the host's memory, which shrinks with every
// further device, so that more of them do not help.
enum class PlanTarget { kGpu, kHostShare };

// Empty if the plan fits. `device_bytes`: of one device. Every setting is a key of the
// configuration. A change marked `enough`, or the changes in `together`, make the plan fit.
PlanAdvices AdviseOnMemory(const ModelSpec& spec,
                           const v1::Config& config,
                           int64_t device_bytes,
                           PlanTarget target);

}  // namespace tandem
