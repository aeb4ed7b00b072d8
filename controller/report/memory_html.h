// A memory plan, and a step of a run beside it, as one page: inline CSS and SVG, nothing outside.
#pragma once

#include <string>

#include "controller/report/memory_text.h"

namespace tandem {

// `memory` without phases: the plan alone; without a plan: the measured step alone. `title` names
// the configuration or the run. `advices`: of a plan that does not fit.
std::string MemoryHtml(const std::string& title,
                       const StepMemory& memory,
                       const PlanAdvices& advices = {});

}  // namespace tandem
