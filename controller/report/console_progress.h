// Shows the run at the terminal: a bar that is redrawn, or plain lines if stdout is not a terminal.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "controller/store/progress.h"

namespace tandem {

// A terminal of fewer columns has one line per step, unless trainer.console_freq is 1.
inline constexpr int kNarrowTerminal = 100;

struct ConsoleOptions {
  std::FILE* out = stdout;
  bool terminal = false;      // redraw the bar in place, and cut lines about steps at its width
  int columns = 0;            // of the terminal; 0: as it says itself
  int64_t console_freq = 25;  // trainer.console_freq
  int64_t log_samples = 0;    // trainer.log_samples
  int64_t log_phases = 0;     // trainer.log_phases
};

// Not thread-safe: called by the train loop's thread.
class ConsoleProgress final : public ProgressSink {
 public:
  explicit ConsoleProgress(ConsoleOptions options) : options_(options) {}

  void OnRunStart(const RunInfo& info) override;
  void OnPhase(int64_t step, const std::string& phase) override;
  void OnPhaseProgress(int64_t step, int64_t done, int64_t total) override;
  void OnLogProbs(int64_t step, const LogProbSummary& comparison) override;
  void OnShortened(int64_t steps) override { info_ = Shortened(info_, steps); }
  void OnStepDetails(int64_t step, const StepDetails& details) override;
  void OnStep(const StepRecord& record) override;
  void OnEvaluation(const EvaluationRecord& record) override;
  void OnMessage(const std::string& text) override;
  void OnRunEnd(const RunSummary& summary, const RunFigures& figures) override;

 private:
  void Line(const std::string& text);  // above the bar
  // The columns of a line; a number that cuts nothing where there is no terminal.
  int Columns() const;
  bool ShowsFurtherLines(int64_t step) const;
  // The characters of each text that trainer.log_samples shows; 0: all.
  size_t SampleWidth() const;
  std::vector<std::string> LinesOf(const StepRecord& record) const;
  void DrawBar();
  void ClearBar();
  std::string Eta() const;

  ConsoleOptions options_;
  RunInfo info_;
  std::string phase_, detail_, last_metrics_;
  LogProbSummary log_probs_;                      // of the step in progress
  StepDetails details_;                           // likewise
  int64_t device_bytes_ = 0, planned_bytes_ = 0;  // of a device, as the memory plan says
  std::map<std::string, double> phase_seconds_;   // of all steps of this process
  int64_t finished_ = 0;                          // newest finished step of the run
  int64_t made_ = 0;                              // steps of this process, repeated ones included
  double seconds_of_made_ = 0;
  bool bar_drawn_ = false;
};

}  // namespace tandem
