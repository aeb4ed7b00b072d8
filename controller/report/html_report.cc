#include "controller/report/html_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "controller/report/format.h"
#include "controller/report/generation_text.h"
#include "controller/report/run_tables.h"
#include "controller/store/post_mortem/event_log.h"
#include "controller/store/run_store.h"

namespace tandem {
namespace {

constexpr int kPlotWidth = 640, kPlotHeight = 240, kPlotLeft = 60, kPlotRight = 16, kPlotTop = 34,
              kPlotBottom = 28;
constexpr int kBarHeight = 22, kBarLeft = 110;
constexpr std::array<const char*, 6> kColours = {"#2563eb", "#dc2626", "#059669",
                                                 "#d97706", "#7c3aed", "#4b5563"};

const char* SeriesColour(size_t i) { return kColours[i % kColours.size()]; }

struct Range {
  double low = 0, high = 1;
  // The position of `value` in the range, between 0 and 1.
  double Share(double value) const { return (value - low) / (high - low); }
};

Range RangeOf(const std::vector<PlotSeries>& series, double PlotPoint::*axis) {
  Range range{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  for (const PlotSeries& s : series) {
    for (const PlotPoint& point : s.points) {
      if (std::isnan(point.y)) continue;
      range.low = std::min(range.low, point.*axis);
      range.high = std::max(range.high, point.*axis);
    }
  }
  if (range.low > range.high) return Range{};
  if (range.low == range.high) return Range{range.low - 0.5, range.high + 0.5};
  return range;
}

std::string Text(double x, double y, const char* anchor, const std::string& text) {
  return fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>)", x, y, anchor,
                     EscapeHtml(text));
}

std::string Axes(const Range& x, const Range& y) {
  std::string svg;
  for (int tick = 0; tick <= 4; ++tick) {
    const double share = tick / 4.0;
    const double at = kPlotHeight - kPlotBottom - share * (kPlotHeight - kPlotTop - kPlotBottom);
    svg += fmt::format(R"(<line class="grid" x1="{}" y1="{:.1f}" x2="{}" y2="{:.1f}"/>)", kPlotLeft,
                       at, kPlotWidth - kPlotRight, at);
    svg +=
        Text(kPlotLeft - 6, at + 4, "end", fmt::format("{:.3g}", y.low + share * (y.high - y.low)));
    svg += Text(kPlotLeft + share * (kPlotWidth - kPlotLeft - kPlotRight), kPlotHeight - 8,
                "middle", fmt::format("{:.4g}", x.low + share * (x.high - x.low)));
  }
  return svg;
}

std::string Curve(const PlotSeries& series, const Range& x, const Range& y, const char* colour) {
  std::string points, dots;
  for (const PlotPoint& point : series.points) {
    if (std::isnan(point.y)) continue;
    const double px = kPlotLeft + x.Share(point.x) * (kPlotWidth - kPlotLeft - kPlotRight);
    const double py =
        kPlotHeight - kPlotBottom - y.Share(point.y) * (kPlotHeight - kPlotTop - kPlotBottom);
    points += fmt::format("{:.1f},{:.1f} ", px, py);
    dots += fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="4" fill="{}"/>)", px, py, colour);
  }
  if (series.markers) return dots;
  return fmt::format(R"(<polyline fill="none" stroke="{}" stroke-width="2" points="{}"/>)", colour,
                     points);
}

}  // namespace

std::string SvgLines(const std::string& title, const std::vector<PlotSeries>& series) {
  const Range x = RangeOf(series, &PlotPoint::x), y = RangeOf(series, &PlotPoint::y);
  std::string svg = fmt::format(R"(<svg viewBox="0 0 {} {}" role="img">)", kPlotWidth, kPlotHeight);
  svg +=
      fmt::format(R"(<text class="title" x="{}" y="16">{}</text>)", kPlotLeft, EscapeHtml(title));
  svg += Axes(x, y);
  double legend = kPlotWidth - kPlotRight;
  for (size_t i = series.size(); i-- > 0;) {
    svg += fmt::format(R"(<text x="{:.1f}" y="16" text-anchor="end" fill="{}">{}</text>)", legend,
                       SeriesColour(i), EscapeHtml(series[i].name));
    legend -= 8.0 * static_cast<double>(series[i].name.size()) + 14;
  }
  for (size_t i = 0; i < series.size(); ++i) svg += Curve(series[i], x, y, SeriesColour(i));
  return svg + "</svg>";
}

std::string SvgBars(const std::string& title, const std::vector<PlotBar>& bars) {
  double high = 0;
  for (const PlotBar& bar : bars) high = std::max(high, bar.value);
  const int height = kPlotTop + kBarHeight * static_cast<int>(bars.size()) + 8;
  std::string svg = fmt::format(R"(<svg viewBox="0 0 {} {}" role="img">)", kPlotWidth, height);
  svg += fmt::format(R"(<text class="title" x="{}" y="16">{}</text>)", 8, EscapeHtml(title));
  for (size_t i = 0; i < bars.size(); ++i) {
    const int y = kPlotTop + kBarHeight * static_cast<int>(i);
    const double width = high > 0 ? bars[i].value / high * (kPlotWidth - kBarLeft - 130) : 0;
    svg += Text(kBarLeft - 6, y + 14, "end", bars[i].name);
    svg += fmt::format(R"(<rect x="{}" y="{}" width="{:.1f}" height="{}" fill="{}"/>)", kBarLeft, y,
                       std::max(width, 0.0), kBarHeight - 6, SeriesColour(i));
    svg += Text(kBarLeft + width + 6, y + 14, "start", bars[i].label);
  }
  return svg + "</svg>";
}

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
  return {name, input.figures.Curve(metric)};
}

// Without the series that have no point; empty if none has one.
std::string PresentLines(const std::string& title, std::vector<PlotSeries> series) {
  std::erase_if(series, [](const PlotSeries& one) { return one.points.empty(); });
  return series.empty() ? "" : SvgLines(title, series);
}

std::string RewardPlot(const ReportInput& input) {
  PlotSeries held_out{"held-out", input.figures.held_out.Points()};
  held_out.markers = true;
  return SvgLines("reward by step", {StepSeries(input, "training", kRewardMean), held_out});
}

std::string PhasePlots(const ReportInput& input) {
  std::vector<PlotBar> seconds, bytes;
  for (const PhaseTotal& total : TotalPhases(input.figures)) {
    seconds.push_back({total.phase, total.mean_seconds, FormatSeconds(total.mean_seconds)});
    bytes.push_back(
        {total.phase, static_cast<double>(total.peak_bytes), FormatBytes(total.peak_bytes)});
  }
  return SvgBars("seconds per step", seconds) + SvgBars("peak memory of a device", bytes);
}

// The section about partial rollout or, without it, about the savings that caps would bring.
std::string PartialSection(const ReportInput& input) {
  const std::string text = PartialText(input.figures);
  if (text.empty()) {
    return "<p>" + EscapeHtml(TailText(input.figures, input.info.max_response_tokens)) + "</p>";
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
        sample.texts_kept ? EscapeHtml(sample.prompt) : "(not kept)",
        sample.texts_kept ? EscapeHtml(sample.response) : "(not kept)",
        EscapeHtml(sample.ground_truth), FormatShare(sample.reward), FormatShare(sample.advantage));
  }
  return html + "</table>";
}

// A table of the val-core metrics of the first and the last validation.
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

std::string Outcome(const RunSummary& summary, int64_t total_steps, int64_t first_step) {
  std::string end = RunOutcomeName(OutcomeOf(summary));
  if (!summary.error.empty()) {
    end = fmt::format("<span class=\"error\">{}: {}</span>", end, EscapeHtml(summary.error));
  }
  return fmt::format("{} after {} of {} steps{}, {} worker restart(s)", end, summary.steps,
                     total_steps, TimeOfSteps(summary.steps, first_step, summary.seconds),
                     summary.restarts);
}

// What the records alone say of the end.
std::string RecordedEnd(const RunInfo& info) {
  switch (info.outcome) {
    case RunOutcome::kFinished:
    case RunOutcome::kStopped:
      return fmt::format("the run {} at {}",
                         info.outcome == RunOutcome::kFinished ? "finished" : "was stopped",
                         EscapeHtml(info.ended_at));
    case RunOutcome::kFailed:
      return fmt::format("<span class=\"error\">failed at {}: {}</span>", EscapeHtml(info.ended_at),
                         EscapeHtml(info.error));
    case RunOutcome::kNone:
    case RunOutcome::kUnknown:
      return "how the run ended is not in its records";
  }
  return "";
}

std::string Facts(const ReportInput& input) {
  const std::string outcome =
      input.summary ? Outcome(*input.summary, input.info.total_steps, input.info.first_step)
                    : fmt::format("{} of {} steps are recorded; {}", input.figures.last_step,
                                  input.info.total_steps, RecordedEnd(input.info));
  return fmt::format(
      "<p>{}. Started {}. Build {}, numerics {}{}.</p>", outcome, EscapeHtml(input.info.started_at),
      EscapeHtml(input.info.build), EscapeHtml(input.info.numerics_class),
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
          EscapeHtml(EvaluationText(input.figures.evaluations, input.info.expected_val_rise)) +
          "</p>";
  html += "<p>" + EscapeHtml(ResentText(input.figures)) + "</p>";
  html += "<p>" + EscapeHtml(UndoneText(input.figures)) + "</p>";
  html += "<p>" + EscapeHtml(input.note) + "</p>";
  html += SvgLines("response length, tokens", {StepSeries(input, "mean", kResponseLengthMean),
                                               StepSeries(input, "p99", kResponseLengthP99)});
  html += PresentLines("loss",
                       {StepSeries(input, "all", kLoss), StepSeries(input, "policy", kPolicyLoss),
                        StepSeries(input, "KL to the reference", kKlLoss)});
  html += SvgLines("entropy and KL to the sampling policy",
                   {StepSeries(input, "entropy", kEntropy), StepSeries(input, "KL", kPolicyKl)});
  html += PresentLines("share of tokens whose ratio is clipped",
                       {StepSeries(input, "clipped", kClipFraction)});
  html += SvgLines("gradient norm", {StepSeries(input, "before clipping", kGradNorm)});
  html += PresentLines("learning rate", {StepSeries(input, "learning rate", kLearningRate)});
  html += SvgLines("tokens per second", {StepSeries(input, "generation", kGenerationThroughput),
                                         StepSeries(input, "training", kTrainingThroughput)});
  html += PartialSection(input);
  html += ValidationTable(input.figures.evaluations);
  html += "<h2>Where the time and the memory go</h2>" + PhasePlots(input);
  html += SampleTable("Samples of the first step", input.first_samples);
  html += SampleTable("Samples of the last step", input.last_samples);
  html += "<h2>Configuration</h2><pre class=\"config\">" + EscapeHtml(input.info.config_yaml) +
          "</pre></body></html>\n";
  return html;
}

}  // namespace tandem
