#include "controller/report/html_report.h"

#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "controller/report/format.h"
#include "controller/report/partial_text.h"
#include "controller/report/run_tables.h"
#include "controller/report/svg_plot.h"
#include "controller/report/tail_text.h"
#include "controller/store/metric_names.h"

namespace tandem {
namespace {

constexpr const char* kReportStyle = R"css(
  body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 62em; color: #111827; }
  h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; }
  svg { width: 100%; max-width: 40em; font: 12px system-ui, sans-serif; display: block; }
  svg .title { font-weight: 600; } svg .grid { stroke: #e5e7eb; }
  table { border-collapse: collapse; } td, th { padding: .25em .8em; border-bottom: 1px solid #e5e7eb;
    text-align: left; vertical-align: top; }
  td pre { margin: 0; white-space: pre-wrap; } .error { color: #b91c1c; }
  pre.config { background: #f9fafb; padding: 1em; overflow-x: auto; }
)css";

PlotSeries StepSeries(const ReportInput& input, const std::string& name, const char* metric) {
  PlotSeries series{name};
  for (const StepRecord& step : input.summary.step_records) {
    series.points.push_back({static_cast<double>(step.step), MetricOf(step, metric)});
  }
  return series;
}

std::string RewardPlot(const ReportInput& input) {
  PlotSeries held_out{"held-out"};
  held_out.markers = true;
  for (const EvaluationRecord& evaluation : input.summary.evaluations) {
    held_out.points.push_back(
        {static_cast<double>(evaluation.step), MetricOf(evaluation, kValRewardMean)});
  }
  return SvgLines("reward by step", {StepSeries(input, "training", kRewardMean), held_out});
}

std::string PhasePlots(const ReportInput& input) {
  std::vector<PlotBar> seconds, bytes;
  for (const PhaseTotal& total : TotalPhases(input.summary.step_records)) {
    seconds.push_back({total.phase, total.mean_seconds, FormatSeconds(total.mean_seconds)});
    bytes.push_back(
        {total.phase, static_cast<double>(total.peak_bytes), FormatBytes(total.peak_bytes)});
  }
  return SvgBars("seconds per step", seconds) + SvgBars("peak memory of a pair", bytes);
}

// What partial rollout did; without it what a cap would have saved.
std::string PartialSection(const ReportInput& input) {
  const std::vector<StepRecord>& steps = input.summary.step_records;
  const std::string text = PartialText(steps);
  if (text.empty()) {
    return "<p>" + EscapeHtml(TailText(steps, input.info.max_response_tokens)) + "</p>";
  }
  return "<h2>Partial rollout</h2><p>" + EscapeHtml(text) + "</p>" +
         SvgLines("shares", {StepSeries(input, "samples of several versions", kPartialRatio),
                             StepSeries(input, "tokens of older weights", kStaleTokensShare),
                             StepSeries(input, "slots left empty", kTailShare)}) +
         SvgLines("rounds and carried groups", {StepSeries(input, "rounds", kRounds),
                                                StepSeries(input, "carried", kCarriedGroups)}) +
         SvgLines("tokens prefilled again", {StepSeries(input, "prefilled again", kPrefilledAgain),
                                             StepSeries(input, "generated", kGeneratedTokens)});
}

std::string SampleTable(const std::string& title, const std::vector<SampleRecord>& samples) {
  if (samples.empty()) return "";
  std::string html = "<h2>" + EscapeHtml(title) +
                     "</h2><table><tr><th>prompt</th><th>response</th><th>truth</th>"
                     "<th>reward</th><th>advantage</th></tr>";
  for (const SampleRecord& sample : samples) {
    html += fmt::format(
        "<tr><td><pre>{}</pre></td><td><pre>{}</pre></td><td>{}</td><td>{}</td><td>{}</td></tr>",
        EscapeHtml(sample.prompt), EscapeHtml(sample.response), EscapeHtml(sample.ground_truth),
        FormatShare(sample.reward), FormatShare(sample.advantage));
  }
  return html + "</table>";
}

// The val-core numbers of the first and the last validation.
std::string ValidationTable(const std::vector<EvaluationRecord>& evaluations) {
  if (evaluations.empty() || CoreMetricLines(evaluations.back()).empty()) return "";
  std::map<std::pair<std::string, std::string>, double> before;
  for (const CoreMetric& core : CoreMetrics(evaluations.front())) {
    before[{core.source, core.metric}] = core.value;
  }
  std::string html = fmt::format(
      "<h2>Validation</h2><table><tr><th>data source and key</th><th>metric</th><th>after step "
      "{}</th><th>after step {}</th></tr>",
      evaluations.front().step, evaluations.back().step);
  for (const CoreMetric& core : CoreMetrics(evaluations.back())) {
    const auto found = before.find({core.source, core.metric});
    html += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                        EscapeHtml(core.source), core.metric,
                        found == before.end() ? "-" : FormatShare(found->second),
                        FormatShare(core.value));
  }
  return html + "</table>";
}

std::string Facts(const ReportInput& input) {
  const std::string outcome =
      input.summary.completed ? "completed"
      : input.summary.error.empty()
          ? "stopped"
          : "<span class=\"error\">failed: " + EscapeHtml(input.summary.error) + "</span>";
  return fmt::format(
      "<p>{} after {} of {} steps in {}, {} worker restart(s). Started {}. Build {}, numerics {}{}."
      "</p>",
      outcome, input.summary.steps, input.info.total_steps, FormatSeconds(input.summary.seconds),
      input.summary.restarts, EscapeHtml(input.info.started_at), EscapeHtml(input.info.build),
      EscapeHtml(input.info.numerics_class),
      input.info.kernel_sets.empty() ? "" : " on " + EscapeHtml(input.info.kernel_sets));
}

}  // namespace

std::string HtmlReport(const ReportInput& input) {
  std::string html = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>";
  html +=
      EscapeHtml(input.info.run_id) + "</title><style>" + kReportStyle + "</style></head><body>";
  html += "<h1>Tandem run " + EscapeHtml(input.info.run_id) + "</h1>" + Facts(input);
  html += "<h2>Reward</h2>" + RewardPlot(input);
  html += "<p>" +
          EscapeHtml(EvaluationText(input.summary.evaluations, input.info.expected_val_rise)) +
          "</p>";
  html += "<p>" + EscapeHtml(ResentText(input.summary.step_records)) + "</p>";
  html += SvgLines("response length, tokens", {StepSeries(input, "mean", kResponseLengthMean),
                                               StepSeries(input, "p99", kResponseLengthP99)});
  html += SvgLines("entropy and KL to the sampling policy",
                   {StepSeries(input, "entropy", kEntropy), StepSeries(input, "KL", kPolicyKl)});
  html += SvgLines("gradient norm", {StepSeries(input, "before clipping", kGradNorm)});
  html += SvgLines("tokens per second", {StepSeries(input, "generation", kGenerationThroughput),
                                         StepSeries(input, "training", kTrainingThroughput)});
  html += PartialSection(input);
  html += ValidationTable(input.summary.evaluations);
  html += "<h2>Where the time and the memory go</h2>" + PhasePlots(input);
  html += SampleTable("Samples of the first step", input.first_samples);
  html += SampleTable("Samples of the last step", input.last_samples);
  html += "<h2>Configuration</h2><pre class=\"config\">" + EscapeHtml(input.info.config_yaml) +
          "</pre></body></html>\n";
  return html;
}

}  // namespace tandem
