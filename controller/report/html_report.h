// Plots as inline SVG text: no script, no outside file.
#pragma once

#include <string>
#include <vector>

#include "controller/store/progress.h"
#include "controller/store/run_store.h"

namespace tandem {

struct PlotPoint {
  double x = 0, y = 0;
};
struct PlotSeries {
  std::string name;
  std::vector<PlotPoint> points;  // ascending x; NaN points are left out
  bool markers = false;           // dots without a line
};

// Lines over a common x axis (steps). A series without points is named in the legend all the same.
std::string SvgLines(const std::string& title, const std::vector<PlotSeries>& series);

struct PlotBar {
  std::string name;
  double value = 0;
  std::string label;  // what stands behind the bar, e.g. "1.2 s"
};
// Horizontal bars from zero.
std::string SvgBars(const std::string& title, const std::vector<PlotBar>& bars);

// The run as one self-contained HTML page.
struct ReportInput {
  RunInfo info;
  RunSummary summary;
  std::vector<SampleRecord> first_samples;  // of the first step, some
  std::vector<SampleRecord> last_samples;   // of the last step, some
};

// Plots are inline SVG; every text of a prompt, response, config or error is escaped.
std::string HtmlReport(const ReportInput& input);

}  // namespace tandem
