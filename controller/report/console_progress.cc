#include "controller/report/console_progress.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <absl/strings/str_split.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "controller/plan/memory_plan.h"
#include "controller/report/format.h"
#include "controller/report/generation_text.h"
#include "controller/report/run_figures.h"
#include "controller/report/run_tables.h"
#include "controller/report/step_lines.h"
#include "controller/report/terminal_text.h"
#include "controller/store/post_mortem/event_log.h"
#include "controller/store/run_store.h"

namespace tandem {
namespace {

constexpr int kBarCells = 20;

std::string Bar(int64_t done, int64_t total) {
  const int64_t filled =
      total > 0 ? std::clamp<int64_t>(done * kBarCells / total, 0, kBarCells) : 0;
  std::string bar;
  for (int64_t i = 0; i < kBarCells; ++i) bar += i < filled ? "█" : "░";
  return bar;
}

std::string MetricsText(const StepRecord& step) {
  return fmt::format("reward {}  length {:.1f}", FormatShare(MetricOf(step, kRewardMean)),
                     MetricOf(step, kResponseLengthMean));
}

// Of the terminal that `out` writes to; a number that cuts nothing where that is not known.
int TerminalColumns(std::FILE* out) {
  winsize size{};
  const bool known = ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return known ? size.ws_col : std::numeric_limits<int>::max();
}

bool IsDue(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

// The columns of a sample's line that are not its two texts.
constexpr int kSampleColumns = 46;

}  // namespace

void ConsoleProgress::OnRunStart(const RunInfo& info) {
  info_ = info;
  finished_ = info.first_step;
  if (const auto plan = MemoryPlanFromJson(info.memory_plan); plan.ok()) {
    device_bytes_ = plan->device_bytes;
    planned_bytes_ = plan->peak_bytes();
  }
  Line(fmt::format("run {} in {}", info.run_id, info.run_dir));
  if (info.first_step > 0) {
    Line(fmt::format("resuming after step {} of {}", info.first_step, info.total_steps));
  }
}

void ConsoleProgress::OnPhase(int64_t, const std::string& phase) {
  phase_ = phase;
  detail_.clear();
  DrawBar();
}

void ConsoleProgress::OnPhaseProgress(int64_t, int64_t done, int64_t total) {
  detail_ = fmt::format(" {}/{}", done, total);
  DrawBar();
}

void ConsoleProgress::OnLogProbs(int64_t, const LogProbSummary& comparison) {
  log_probs_ = comparison;
}

void ConsoleProgress::OnStepDetails(int64_t, const StepDetails& details) { details_ = details; }

int ConsoleProgress::Columns() const {
  if (!options_.terminal) return std::numeric_limits<int>::max();
  return options_.columns > 0 ? options_.columns : TerminalColumns(options_.out);
}

bool ConsoleProgress::ShowsFurtherLines(int64_t step) const {
  if (options_.console_freq == 1) return true;
  if (options_.console_freq == 0 || Columns() < kNarrowTerminal) return false;
  return step == 1 || step == 2 || step == 5 || step == 10 || IsDue(step, options_.console_freq);
}

size_t ConsoleProgress::SampleWidth() const {
  if (!options_.terminal) return 0;
  const int room = std::max(0, (Columns() - kSampleColumns) / 2);
  return std::max(kSampleTextWidth, static_cast<size_t>(room));
}

std::vector<std::string> ConsoleProgress::LinesOf(const StepRecord& record) const {
  const StepSurroundings around{.total_steps = info_.total_steps,
                                .time_left = Eta(),
                                .log_probs = log_probs_,
                                .details = details_,
                                .device_bytes = device_bytes_,
                                .planned_bytes = planned_bytes_};
  std::vector<std::string> lines = {StepLine(record, around)};
  const bool further = ShowsFurtherLines(record.step);
  const bool samples = IsDue(record.step, options_.log_samples);
  const auto append = [&lines](const std::vector<std::string>& more) {
    lines.insert(lines.end(), more.begin(), more.end());
  };
  if (further) append(FurtherStepLines(record, around));
  if (samples) {
    append(SampleLines(details_, SampleWidth()));
  } else if (further && options_.log_samples >= 0) {
    append(SampleLines(details_, kSampleTextWidth));
  }
  if (IsDue(record.step, options_.log_phases)) {
    const std::string table = StepPhaseTable(record, phase_seconds_);
    const std::vector<std::string> rows = absl::StrSplit(table, '\n', absl::SkipEmpty());
    append(rows);
  }
  return lines;
}

void ConsoleProgress::OnStep(const StepRecord& record) {
  finished_ = record.step;
  ++made_;
  seconds_of_made_ += MetricOf(record, kStepSeconds);
  for (const PhaseTime& phase : record.phases) phase_seconds_[phase.phase] += phase.seconds;
  last_metrics_ = MetricsText(record);
  for (const std::string& line : LinesOf(record)) {
    Line(CutToColumns(line, static_cast<size_t>(Columns())));
  }
  log_probs_ = {};
  details_ = {};
}

void ConsoleProgress::OnEvaluation(const EvaluationRecord& record) {
  Line(fmt::format("held-out after step {}: reward {} ± {} on {} prompts x {} ({})", record.step,
                   FormatShare(MetricOf(record, kValRewardMean)),
                   FormatShare(MetricOf(record, kValRewardInterval)), record.prompts,
                   record.prompts > 0 ? record.samples / record.prompts : 0,
                   FormatSeconds(record.seconds)));
  for (const std::string& line : CoreMetricLines(record)) Line("  " + line);
}

void ConsoleProgress::OnMessage(const std::string& text) { Line(text); }

void ConsoleProgress::OnRunEnd(const RunSummary& summary, const RunFigures& figures) {
  ClearBar();
  std::string text = "\n";
  const std::string held_out = EvaluationText(figures.evaluations, info_.expected_val_rise);
  if (figures.steps > 0) {
    text += "training reward\n  " + RewardCurve(figures);
    if (!held_out.empty()) text += "  " + held_out;
    text += "\n" + PhaseTable(figures) + "\n";
  } else if (!held_out.empty()) {
    text += held_out + "\n";
  }
  if (const int64_t skipped = figures.skipped_updates; skipped > 0) {
    text += fmt::format(
        "{} {} skipped: the gradient norm was not finite, or no token was left to train on\n",
        skipped, skipped == 1 ? "update was" : "updates were");
  }
  std::string rounds = PartialText(figures);
  if (rounds.empty()) rounds = TailText(figures, info_.max_response_tokens);
  if (!rounds.empty()) text += rounds + "\n";
  for (const std::string& line : {ResentText(figures), UndoneText(figures)}) {
    if (!line.empty()) text += line + "\n";
  }
  text += RunOutcomeName(OutcomeOf(summary));
  if (!summary.error.empty()) text += ": " + summary.error;
  // A run that ends before it has loaded its checkpoint has not run any step.
  const int64_t steps = std::max(summary.steps, info_.first_step);
  text += fmt::format(" after {} steps{}\n", steps,
                      TimeOfSteps(steps, info_.first_step, summary.seconds));
  if (!summary.report.empty()) text += "report      " + summary.report + "\n";
  if (figures.steps > 0) {
    text += fmt::format("samples     {}/run.db, {}/samples\n", info_.run_dir, info_.run_dir);
  }
  if (!summary.checkpoint.empty()) text += "checkpoint  " + summary.checkpoint + "\n";
  std::fputs(text.c_str(), options_.out);
  std::fflush(options_.out);
}

void ConsoleProgress::Line(const std::string& text) {
  ClearBar();
  std::fputs((Printable(text) + "\n").c_str(), options_.out);
  std::fflush(options_.out);
  DrawBar();
}

void ConsoleProgress::DrawBar() {
  if (!options_.terminal || info_.total_steps == 0) return;
  ClearBar();
  const std::string bar =
      fmt::format("{} {}/{}  {}{}  {}  ETA {}", Bar(finished_, info_.total_steps), finished_,
                  info_.total_steps, phase_, detail_, last_metrics_, Eta());
  // A bar of two rows could not be drawn over.
  std::fputs(("\r" + CutToColumns(bar, static_cast<size_t>(Columns()) - 1)).c_str(), options_.out);
  std::fflush(options_.out);
  bar_drawn_ = true;
}

void ConsoleProgress::ClearBar() {
  if (!bar_drawn_) return;
  std::fputs("\r\x1b[K", options_.out);
  bar_drawn_ = false;
}

std::string ConsoleProgress::Eta() const {
  if (made_ == 0) return "-";
  const auto left = static_cast<double>(info_.total_steps - finished_);
  return FormatSeconds(seconds_of_made_ / static_cast<double>(made_) * std::max(left, 0.0));
}

}  // namespace tandem
