// A memory plan, compared with a step of a run, as one HTML page: inline CSS and SVG, no external
// files.
#pragma once

#include <string>

#include "controller/report/memory_text.h"

namespace tandem {

// `memory` without phases: shows the plan only; without a plan: shows the measured step only.
// `title` names the configuration or the run. `advices`: for a plan that does not fit.
std::string MemoryHtml(const std::string& title,
                       const StepMemory& memory,
                       const PlanAdvices& advices = {});

}  // namespace tandem
