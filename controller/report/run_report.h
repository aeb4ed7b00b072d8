// A run's report, from its records: one HTML page, with plots as inline SVG and without scripts and
// external files.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "controller/report/run_figures.h"
#include "controller/store/progress.h"
#include "controller/store/run_store.h"

namespace tandem {

// Reads all steps, in pages. Errors as RunRecords.
absl::StatusOr<RunFigures> GatherFigures(RunRecords& records);

struct PlotSeries {
  std::string name;
  std::vector<PlotPoint> points;  // ascending x; NaN points are skipped
  bool markers = false;           // dots without a line
};

// Lines over a common x axis (steps). The legend also names series without points.
std::string SvgLines(const std::string& title, const std::vector<PlotSeries>& series);

struct PlotBar {
  std::string name;
  double value = 0;
  std::string label;  // text after the bar, such as "1.2 s"
};
// Horizontal bars from zero.
std::string SvgBars(const std::string& title, const std::vector<PlotBar>& bars);

// The contents of a run's report.
struct ReportInput {
  RunInfo info;
  std::optional<RunSummary> summary;  // nullopt: how the run ended is not known
  RunFigures figures;
  std::vector<SampleRecord> first_samples;  // some samples of the first step
  std::vector<SampleRecord> last_samples;   // some samples of the last step
};

// A self-contained HTML page. Texts of prompts, responses, configuration and errors are escaped.
std::string HtmlReport(const ReportInput& input);

// HtmlReport with some samples of the first and the last step. `summary`: how the run ended;
// nullopt: that is not known, as for who only has the records. Errors as RunRecords.
absl::StatusOr<std::string> MakeRunReport(RunRecords& records,
                                          const RunInfo& info,
                                          const std::optional<RunSummary>& summary,
                                          const RunFigures& figures);

}  // namespace tandem
