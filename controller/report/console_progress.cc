#include "controller/report/console_progress.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "controller/report/format.h"
#include "controller/report/generation_text.h"
#include "controller/report/run_figures.h"
#include "controller/report/run_tables.h"
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
  std::string text =
      fmt::format("reward {}  length {:.1f}", FormatShare(MetricOf(step, kRewardMean)),
                  MetricOf(step, kResponseLengthMean));
  const double generation = MetricOf(step, kGenerationThroughput);
  const double training = MetricOf(step, kTrainingThroughput);
  const double batches = MetricOf(step, kGenerationBatches);
  if (batches > 1) text += fmt::format("  filled by {:.0f} batches", batches);
  if (!std::isnan(generation)) {
    text += fmt::format("  gen {:.0f} tok/s", generation);
  } else if (HasPartial(step)) {
    text += "  gen - tok/s";  // no round in this step
  }
  if (!std::isnan(training)) text += fmt::format("  train {:.0f} tok/s", training);
  return text;
}

// Reports which log-probs were compared: those of older weights may differ from the trainer's.
std::string LogProbsText(const LogProbSummary& comparison, const StepRecord& step) {
  const double older = MetricOf(step, kStaleTokens);
  const bool mixed = older > 0;  // NaN without partial rollout
  if (comparison.compared == 0) {
    return mixed ? "  no log-probs compared: no token is of the step's weights" : "";
  }
  std::string text =
      fmt::format("  {} of {} token log-probs {}identical, |Δ| max {:.3g} mean {:.3g}",
                  comparison.identical, comparison.compared, mixed ? "of the step's weights " : "",
                  comparison.max_abs_difference, comparison.mean_abs_difference);
  if (mixed) text += fmt::format(" ({:.0f} tokens of older weights are not compared)", older);
  return text;
}

}  // namespace

void ConsoleProgress::OnRunStart(const RunInfo& info) {
  info_ = info;
  finished_ = info.first_step;
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

void ConsoleProgress::OnStep(const StepRecord& record) {
  finished_ = record.step;
  ++made_;
  seconds_of_made_ += MetricOf(record, kStepSeconds);
  last_metrics_ = MetricsText(record);
  const std::string partial = PartialStepText(record);
  Line(fmt::format("step {}/{}  {}{}{}  {:.1f} s  ETA {}{}", record.step, info_.total_steps,
                   last_metrics_, partial.empty() ? "" : "  ", partial,
                   MetricOf(record, kStepSeconds), Eta(), LogProbsText(log_probs_, record)));
  log_probs_ = {};
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
  text += summary.completed       ? "completed"
          : summary.error.empty() ? "stopped"
                                  : "failed: " + summary.error;
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

namespace {

// Of the terminal that `out` writes to; a number that cuts nothing where that is not known.
int TerminalColumns(std::FILE* out) {
  winsize size{};
  const bool known = ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return known ? size.ws_col : std::numeric_limits<int>::max();
}

// The first `columns` characters of a text in UTF-8.
std::string FirstColumns(const std::string& text, int columns) {
  int seen = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool begins = (static_cast<unsigned char>(text[i]) & 0xc0) != 0x80;
    if (begins && ++seen > columns) return text.substr(0, i);
  }
  return text;
}

}  // namespace

void ConsoleProgress::Line(const std::string& text) {
  ClearBar();
  std::fputs((text + "\n").c_str(), options_.out);
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
  std::fputs(("\r" + FirstColumns(bar, TerminalColumns(options_.out) - 1)).c_str(), options_.out);
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
