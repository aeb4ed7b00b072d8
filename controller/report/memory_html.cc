#include "controller/report/memory_html.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "controller/report/format.h"

namespace tandem {
namespace {

constexpr const char* kMemoryStyle = R"css(
  body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 70em; color: #111827; }
  h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; }
  svg { width: 100%; font: 12px system-ui, sans-serif; display: block; }
  svg .limit { stroke: #111827; stroke-dasharray: 4 3; }
  table { border-collapse: collapse; } td, th { padding: .25em .8em; text-align: right;
    border-bottom: 1px solid #e5e7eb; } td:first-child, th:first-child { text-align: left; }
  .key { display: inline-block; margin-right: 1.2em; } .key i { display: inline-block; width: 1em;
    height: 1em; margin-right: .4em; vertical-align: -.15em; } .bad { color: #b91c1c; }
)css";

constexpr int kMemoryWidth = 960, kMemoryLeft = 190, kMemoryRight = 90, kMemoryRow = 24,
              kMemoryTop = 22;

// A colour for each tag; the rollout's are drawn paler.
const char* TagColour(const std::string& tag) {
  static const std::map<std::string, const char*> colours = {
      {"master", "#1d4ed8"},    {"weights", "#059669"},     {"reference", "#7c3aed"},
      {"optimizer", "#d97706"}, {"gradients", "#dc2626"},   {"gather", "#0891b2"},
      {"bucket", "#be185d"},    {"activations", "#65a30d"}, {"workspace", "#6b7280"},
      {"kv_cache", "#c026d3"},  {"driver", "#9ca3af"}};
  const auto found = colours.find(tag);
  return found == colours.end() ? "#111827" : found->second;
}

struct Row {
  std::string name;
  std::vector<MemoryLine> lines;  // bytes that are drawn
  // Of the device. Measured, less than the lines together: tags have their peaks at other times.
  int64_t bytes = 0;
  int64_t trainer_bytes = 0, rollout_bytes = 0;  // of the device of each, where they have one
};

std::string Bars(const std::vector<Row>& rows, int64_t device_bytes) {
  int64_t full = 1;
  for (const Row& row : rows) full = std::max(full, row.bytes);
  // Show the end of the device, unless the bars would become too short.
  const bool limited = device_bytes > 0 && device_bytes < 4 * full;
  if (limited) full = std::max(full, device_bytes);
  const double scale =
      static_cast<double>(kMemoryWidth - kMemoryLeft - kMemoryRight) / static_cast<double>(full);
  const int height = kMemoryTop + kMemoryRow * static_cast<int>(rows.size()) + 4;
  std::string svg = fmt::format(R"(<svg viewBox="0 0 {} {}" role="img">)", kMemoryWidth, height);
  for (size_t i = 0; i < rows.size(); ++i) {
    const int y = kMemoryTop + kMemoryRow * static_cast<int>(i);
    svg += fmt::format(R"(<text x="{}" y="{}" text-anchor="end">{}</text>)", kMemoryLeft - 8,
                       y + 15, EscapeHtml(rows[i].name));
    double x = kMemoryLeft;
    for (const MemoryLine& line : rows[i].lines) {
      const double width = static_cast<double>(line.bytes) * scale;
      if (width <= 0) continue;
      svg += fmt::format(
          R"(<rect x="{:.1f}" y="{}" width="{:.1f}" height="{}" fill="{}" opacity="{}"><title>{} {}: {}</title></rect>)",
          x, y, width, kMemoryRow - 6, TagColour(line.tag), line.trainer ? "1" : "0.55",
          line.trainer ? "trainer" : "rollout", EscapeHtml(line.tag), FormatBytes(line.bytes));
      x += width;
    }
    svg += fmt::format(R"(<text x="{:.1f}" y="{}">{}</text>)", x + 6, y + 15,
                       FormatBytes(rows[i].bytes));
  }
  const double limit = kMemoryLeft + static_cast<double>(device_bytes) * scale;
  if (limited) {
    svg += fmt::format(R"(<line class="limit" x1="{0:.1f}" y1="{1}" x2="{0:.1f}" y2="{2}"/>)",
                       limit, kMemoryTop - 4, height);
    svg += fmt::format(R"(<text x="{:.1f}" y="12" text-anchor="end">device {}</text>)", limit,
                       FormatBytes(device_bytes));
  }
  return svg + "</svg>";
}

std::string Legend(const std::vector<Row>& rows) {
  std::set<std::pair<bool, std::string>> tags;
  for (const Row& row : rows) {
    for (const MemoryLine& line : row.lines) {
      if (line.bytes > 0) tags.insert({!line.trainer, line.tag});
    }
  }
  std::string html = "<p>";
  for (const auto& [rollout, tag] : tags) {
    html += fmt::format(R"(<span class="key"><i style="background:{};opacity:{}"></i>{} {}</span>)",
                        TagColour(tag), rollout ? "0.55" : "1", rollout ? "rollout" : "trainer",
                        EscapeHtml(tag));
  }
  return html + "</p>";
}

Row Planned(const MemoryPlan& plan, const PlannedPhase& phase, const std::string& name) {
  Row row{name, phase.lines, plan.DeviceBytes(phase), plan.Bytes(phase, true),
          plan.Bytes(phase, false)};
  for (MemoryLine& line : row.lines) line.bytes = plan.Bytes(line);
  return row;
}

Row Measured(const PhaseTime& phase, const ShownWorkers& shown, const std::string& name) {
  const PairMemory memory = PairOf(phase, shown);
  return {name, MeasuredLines(phase, shown), memory.peak_bytes(), memory.trainer.peak_on_device(),
          memory.rollout.peak_on_device()};
}

// Apart, one row for each of the two devices.
std::vector<Row> ByDevice(const Row& row, bool apart) {
  if (!apart) return {row};
  std::vector<Row> rows;
  for (const bool trainer : {true, false}) {
    Row& own = rows.emplace_back(Row{.name = row.name + (trainer ? ", trainer" : ", rollout"),
                                     .bytes = trainer ? row.trainer_bytes : row.rollout_bytes});
    for (const MemoryLine& line : row.lines) {
      if (line.trainer == trainer) own.lines.push_back(line);
    }
  }
  return rows;
}

std::vector<Row> RowsOf(const StepMemory& memory) {
  const bool apart = memory.plan.apart;
  std::vector<Row> rows;
  const auto add = [&](const Row& row) {
    const std::vector<Row> of_devices = ByDevice(row, apart);
    rows.insert(rows.end(), of_devices.begin(), of_devices.end());
  };
  if (memory.phases.empty()) {
    for (const PlannedPhase& phase : memory.plan.phases) {
      add(Planned(memory.plan, phase, phase.phase));
    }
    return rows;
  }
  const ShownWorkers shown = HeaviestWorkers(memory.phases, apart);
  for (const PhaseTime& phase : memory.phases) {
    const PlannedPhase* planned = memory.plan.Find(phase.phase);
    if (planned != nullptr) add(Planned(memory.plan, *planned, phase.phase + ", planned"));
    add(Measured(phase, shown, phase.phase + ", measured"));
  }
  return rows;
}

std::string PlanTable(const MemoryPlan& plan) {
  std::string html = fmt::format(
      "<table><tr><th>phase</th><th>trainer</th><th>rollout</th><th>{}</th><th>of device</th></tr>",
      DeviceHeading(plan.apart));
  for (const PlannedPhase& phase : plan.phases) {
    html += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.1f} %</td></tr>",
                        EscapeHtml(phase.phase), FormatBytes(plan.Bytes(phase, true)),
                        FormatBytes(plan.Bytes(phase, false)), FormatBytes(plan.DeviceBytes(phase)),
                        100.0 * static_cast<double>(plan.DeviceBytes(phase)) /
                            static_cast<double>(std::max<int64_t>(1, plan.device_bytes)));
  }
  return html + "</table>";
}

std::string StepTable(const StepMemory& memory) {
  const ShownWorkers shown = HeaviestWorkers(memory.phases, memory.plan.apart);
  std::string html = fmt::format(
      "<table><tr><th>phase</th><th>seconds</th><th>trainer</th><th>rollout</th><th>{}</th>"
      "<th>planned</th><th>of device</th><th>system</th><th>unaccounted</th></tr>",
      DeviceHeading(memory.plan.apart));
  for (const PhaseTime& phase : memory.phases) {
    const PairMemory pair = PairOf(phase, shown);
    const PlannedPhase* planned = memory.plan.Find(phase.phase);
    html += fmt::format(
        "<tr><td>{}</td><td>{:.3f}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.1f} %"
        "</td><td>{}</td><td>{}</td></tr>",
        EscapeHtml(phase.phase), phase.seconds, FormatBytes(pair.trainer.peak_on_device()),
        FormatBytes(pair.rollout.peak_on_device()), FormatBytes(pair.peak_bytes()),
        planned == nullptr ? "-" : FormatBytes(memory.plan.LedgerDeviceBytes(*planned)),
        100.0 * static_cast<double>(pair.peak_bytes()) /
            static_cast<double>(std::max<int64_t>(1, memory.plan.device_bytes)),
        FormatBytes(pair.trainer.process_bytes + pair.rollout.process_bytes),
        FormatBytes(pair.trainer.unaccounted_bytes() + pair.rollout.unaccounted_bytes()));
  }
  return html +
         "</table><p>system: resident memory of both processes at the end of the phase; "
         "unaccounted: what of it is neither in a ledger nor was there before anything was "
         "counted.</p>";
}

std::string AdviceHtml(const PlanAdvices& advices) {
  std::string html = "<h2>What to change</h2>";
  if (!advices.alone.empty()) {
    html += "<table><tr><th>change</th><th>of the peak</th><th></th></tr>";
    for (const PlanAdvice& advice : advices.alone) {
      html += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td></tr>", EscapeHtml(advice.setting),
                          SavedText(advice), AdviceRemark(advice));
    }
    html += "</table>";
  }
  const std::string end = AdviceEnd(advices);
  return end.empty() ? html : html + "<pre>" + EscapeHtml(end) + "</pre>";
}

}  // namespace

std::string MemoryHtml(const std::string& title,
                       const StepMemory& memory,
                       const PlanAdvices& advices) {
  const MemoryPlan& plan = memory.plan;
  const std::vector<Row> rows = RowsOf(memory);
  std::string html = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>";
  html += EscapeHtml(title) + "</title><style>" + kMemoryStyle + "</style></head><body>";
  html += fmt::format("<h1>Memory of {}: {}</h1>",
                      plan.apart ? "a trainer and a rollout" : "a pair", EscapeHtml(title));
  if (!plan.phases.empty()) {
    html += fmt::format("<p{}>Planned {}.</p>", plan.fits() ? "" : " class=\"bad\"",
                        EscapeHtml(MemoryPlanSummary(plan)));
  }
  if (!memory.phases.empty()) {
    html += "<h2>" + EscapeHtml(memory.state) + "</h2>";
  }
  html += Bars(rows, plan.device_bytes) + Legend(rows);
  html += memory.phases.empty() ? PlanTable(plan) : StepTable(memory);
  if (!memory.note.empty()) html += "<p>" + EscapeHtml(memory.note) + "</p>";
  if (memory.phases.empty() && !plan.phases.empty() && !plan.fits()) html += AdviceHtml(advices);
  return html + "</body></html>\n";
}

}  // namespace tandem
