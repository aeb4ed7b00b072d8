// The run as one self-contained HTML page.
#pragma once

#include <string>
#include <vector>

#include "controller/store/progress.h"
#include "controller/store/records.h"

namespace tandem {

struct ReportInput {
  RunInfo info;
  RunSummary summary;
  std::vector<SampleRecord> first_samples;  // of the first step, some
  std::vector<SampleRecord> last_samples;   // of the last step, some
};

// Plots are inline SVG; every text of a prompt, response, config or error is escaped.
std::string HtmlReport(const ReportInput& input);

}  // namespace tandem
