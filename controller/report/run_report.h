// Makes a run's report from its records.
#pragma once

#include <optional>
#include <string>

#include <absl/status/statusor.h>

#include "controller/report/run_figures.h"
#include "controller/store/progress.h"
#include "controller/store/run_store.h"

namespace tandem {

// Reads all steps, in pages. Errors as RunRecords.
absl::StatusOr<RunFigures> GatherFigures(RunRecords& records);

// HtmlReport with some samples of the first and the last step. `summary`: how the run ended;
// nullopt: that is not known, as for who only has the records. `note`: a sentence about the steps,
// shown below the rewards; may be empty. Errors as RunRecords.
absl::StatusOr<std::string> MakeRunReport(RunRecords& records,
                                          const RunInfo& info,
                                          const std::optional<RunSummary>& summary,
                                          const RunFigures& figures,
                                          const std::string& note = "");

}  // namespace tandem
