// The run's report as one HTML page, with plots as inline SVG: no scripts and no external files.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "controller/report/run_figures.h"
#include "controller/store/progress.h"
#include "controller/store/run_store.h"

namespace tandem {

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
  std::string note;                         // a sentence about the steps; may be empty
};

// A self-contained HTML page. Texts of prompts, responses, configuration and errors are escaped.
std::string HtmlReport(const ReportInput& input);

}  // namespace tandem
