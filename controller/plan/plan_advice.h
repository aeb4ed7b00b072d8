// What to change in a configuration that does not fit its device.
#pragma once

#include <cstdint>

#include "common/config/config.h"
#include "common/model_spec/model_spec.h"
#include "controller/plan/memory_plan.h"

namespace tandem {

// Where the bytes of a pair come from: the memory of a GPU, or a share of the host's memory, which
// shrinks with every further pair, so that more pairs are no remedy.
enum class PlanTarget { kGpu, kHostShare };

// Nothing where the plan fits. `device_bytes`: of one pair. Every setting is one of the
// configuration's keys, and a change, or the changes together, that are said to fit do fit.
PlanAdvices AdviseOnMemory(const ModelSpec& spec,
                           const v1::Config& config,
                           int64_t device_bytes,
                           PlanTarget target);

}  // namespace tandem
